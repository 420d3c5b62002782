#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "arguments.h"
#include "regions.h"
#include "winograd.h"

/* Sources whose weights are transformed at once: the matrices of as many rows stay in a core's own cache, and sums of products
   of as many bytes are exact, whatever these are. */
enum { BL_SRC_AT_ONCE = 64, BL_PAIRED_SRC_AT_ONCE = 256, BL_SRC_BYTES_AT_ONCE = 112 };

/* From one of the matrices to the next: with distances that are powers of two, all of them would compete for the same few
   places of the nearest cache. */
static int64_t apart(int64_t length) { return length + 16; }

#if defined(__x86_64__)
#include "bytes.h"

typedef struct {
    const void *src, *weights; /* floats, bf16 or bytes, as are addend and results */
    const float *bias;
    const void *addend;
    void *dst;
    /* Transformed: [products][tiles_at_once][sources, whole vectors of them], or with AVX2 [products][rounds][tiles_at_once]
       [sources of a round], of each thread if it works apart; 16 bits each in bf16 with tiles of 2x2 and of bytes, as are
       weights. */
    float *sources;
    float *own; /* of each thread: [products][tiles_of_task][panel], then weights [products][sources at once][panel], and of
       bytes [tiles_of_task][panel][results of a tile] */
    int64_t sources_length, own_length; /* of one thread's */
    bl_bytes_t bytes; /* if they are */
} bl_buffers_t;

typedef struct {
    int64_t image, row, column;
} bl_tile_t;

typedef struct {
    int64_t first, length;
} bl_row_t;

typedef struct {
    float bias[16], scales[16]; /* of the channels in a vector */
} bl_channels_t;

static int64_t tiles_along(int64_t extent, int tile) { return (extent + tile - 1) / tile; }

static int64_t n_tiles(const bl_winograd_t *p, int tile) {
    return p->n_images * tiles_along(p->dst_height, tile) * tiles_along(p->dst_width, tile);
}

static bl_tile_t tile_at(const bl_winograd_t *p, int tile, int64_t number) {
    int64_t rows = tiles_along(p->dst_height, tile), columns = tiles_along(p->dst_width, tile);
    return (bl_tile_t){number / (rows * columns), number / columns % rows, number % columns};
}

/* Where a tile's transformed sources from c on lie, and the length of their row: of `all` sources rounds of that length, or of
   what is left, lie behind each other, each for all `count` tiles. */
static bl_row_t row_at(int64_t c, int64_t length, int64_t all, int64_t count, int64_t tile) {
    int64_t start = c / length * length, own = all - start < length ? all - start : length;
    return (bl_row_t){start * count + tile * own + c - start, own};
}

static int64_t channel_at(const bl_place_t *place, int64_t image, int64_t channel) {
    return image * place->image + channel / place->channels * place->group + channel % place->channels;
}

static bl_channels_t channels_of(const bl_winograd_t *p, const bl_buffers_t *b, int64_t first) {
    bl_channels_t channels = {{0}, {0}};
    for (int64_t i = 0; i < p->lanes && first + i < p->n_dst; i++) {
        channels.bias[i] = b->bias ? b->bias[first + i] : 0;
        channels.scales[i] = scale_of(&b->bytes, p->has_scales, first + i);
    }
    return channels;
}

/* Modulo 2^32; of weights with which sums of products are exact (winograd_bytes.h). */
enum { BL_INVERSE_OF_9 = 954437177, BL_MOST_MAGNITUDE = ((1 << 25) - 1) / 255 };

#define TILE 4
#define HAS_PAIRS 0
#define HAS_BYTES 0
#define SRC_AT_ONCE BL_SRC_AT_ONCE

#define LANES 8
#define ROWS 6
#define TARGET TARGET_8
#define OWN(name) name##_8
typedef float element_8;
INLINE TARGET vec_8 read_8(const float *from) { return *(const vec_8 *)from; }
INLINE TARGET void write_8(float *to, vec_8 value) { *(vec_8 *)to = value; }
#define PART 8
#define part_8 vec_8
#define read_src_8(b, from, n) ((void)(b), (void)(n), read_8(from))
#define keep_8 write_8
#include "winograd_kernel.h"
#undef LANES
#undef PART
#undef ROWS
#undef TARGET
#undef OWN

#define LANES 16
#define ROWS 12
#define TARGET TARGET_16
#define OWN(name) name##_16
typedef float element_16;
INLINE TARGET vec_16 read_16(const float *from) { return *(const vec_16 *)from; }
INLINE TARGET void write_16(float *to, vec_16 value) { *(vec_16 *)to = value; }
#define PART 16
#define part_16 vec_16
#define read_src_16(b, from, n) ((void)(b), (void)(n), read_16(from))
#define keep_16 write_16
#include "winograd_kernel.h"
#undef OWN

/* Reads and writes bf16; products and sums are in f32. */
#define OWN(name) name##_bf16
typedef uint16_t element_bf16;
INLINE TARGET vec_16 read_bf16(const uint16_t *from) {
    return (vec_16)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from)), 16);
}
INLINE TARGET void write_bf16(uint16_t *to, vec_16 value) {
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(rounded(value)));
}
#define logistic_bf16 rough_logistic
#define part_bf16 vec_16
#define read_src_bf16(b, from, n) ((void)(b), (void)(n), read_bf16(from))
#define keep_bf16 write_16
#include "winograd_kernel.h"
#undef OWN
#undef TILE
#undef HAS_PAIRS
#undef SRC_AT_ONCE
#undef TARGET

#if __GNUC__ >= 10 || defined(__clang__)
/* The same with products of bf16. */
#define TILE 2
#define HAS_PAIRS 1
#define SRC_AT_ONCE BL_PAIRED_SRC_AT_ONCE
#define TARGET TARGET_BF16
#define OWN(name) name##_pairs
typedef uint16_t element_pairs;
#define read_pairs read_bf16
#define write_pairs write_bf16
#define logistic_pairs rough_logistic
#define part_pairs vec_16
#define read_src_pairs(b, from, n) ((void)(b), (void)(n), read_bf16(from))
INLINE TARGET void keep_pairs(uint16_t *to, vec_16 value) {
    _mm256_storeu_si256((__m256i *)to, (__m256i)_mm512_cvtneps_pbh((__m512)value));
}
INLINE TARGET void keep_pairs_pairs(uint16_t *to, vec_16 first, vec_16 second) {
    __m512i place = _mm512_setr_epi32(0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005, 0x160006, 0x170007, 0x180008,
        0x190009, 0x1a000a, 0x1b000b, 0x1c000c, 0x1d000d, 0x1e000e, 0x1f000f);
    __m512i halves = (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(place, halves));
}
#define add_pair_pairs(sum, a, b) ((vec_16)_mm512_dpbf16_ps((__m512)(sum), (__m512bh)(a), (__m512bh)(b)))
#include "winograd_kernel.h"
#undef TILE
#undef HAS_PAIRS
#undef SRC_AT_ONCE
#undef TARGET
#undef OWN
#else
#define work_apart_pairs NULL
#define work_together_pairs NULL
#endif
#undef HAS_BYTES
#undef LANES
#undef PART
#undef ROWS

#define TILE 4
#define HAS_PAIRS 1
#define HAS_BYTES 1
#define SRC_AT_ONCE BL_SRC_BYTES_AT_ONCE

#define LANES 8
#define PART 16
#define ROWS 6
#define TARGET TARGET_8
#define OWN(name) name##_bytes_8
typedef uint8_t element_bytes_8;
typedef int16_t part_bytes_8 __attribute__((vector_size(32), aligned(2)));
#define logistic_bytes_8 logistic_8
#define keep_bytes_8(to, value) ((void)(*(part_bytes_8 *)(to) = (value)))
INLINE TARGET part_bytes_8 read_src_bytes_8(const bl_buffers_t *b, const uint8_t *from, int64_t n) {
    __m128i bytes;
    if (n >= PART)
        bytes = _mm_loadu_si128((const __m128i *)from);
    else {
        uint8_t rest[PART] = {0};
        bytes = _mm_loadu_si128(memcpy(rest, from, (size_t)n));
    }
    return (part_bytes_8)_mm256_cvtepu8_epi16(_mm_xor_si128(bytes, _mm_set1_epi8((char)b->bytes.flip)));
}
#define magnitude_bytes_8(value) ((part_bytes_8)_mm256_abs_epi16((__m256i)(value)))
#define add_pair_bytes_8(sum, a, b) \
    ((vec_8)_mm256_add_epi32((__m256i)(sum), _mm256_madd_epi16((__m256i)(a), (__m256i)(b))))
#include "winograd_kernel.h"
#undef LANES
#undef PART
#undef ROWS
#undef TARGET
#undef OWN

#define LANES 16
#define PART 32
#define ROWS 12
#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512vnni")))
#define OWN(name) name##_bytes_16
typedef uint8_t element_bytes_16;
typedef int16_t part_bytes_16 __attribute__((vector_size(64), aligned(2)));
#define logistic_bytes_16 logistic_16
#define keep_bytes_16(to, value) ((void)(*(part_bytes_16 *)(to) = (value)))
INLINE TARGET part_bytes_16 read_src_bytes_16(const bl_buffers_t *b, const uint8_t *from, int64_t n) {
    __m256i bytes = _mm256_maskz_loadu_epi8(n < PART ? (1u << n) - 1 : ~0u, from);
    return (part_bytes_16)_mm512_cvtepu8_epi16(_mm256_xor_si256(bytes, _mm256_set1_epi8((char)b->bytes.flip)));
}
#define magnitude_bytes_16(value) ((part_bytes_16)_mm512_abs_epi16((__m512i)(value)))
#define add_pair_bytes_16(sum, a, b) ((vec_16)_mm512_dpwssd_epi32((__m512i)(sum), (__m512i)(a), (__m512i)(b)))
#include "winograd_kernel.h"
#endif

static int64_t n_products(const bl_winograd_t *p) { return p->tile == 2 ? 16 : 36; }

static int64_t sources_length(const bl_winograd_t *p) {
    int64_t part = p->are_bytes ? 2 * p->lanes : p->lanes, row = (p->n_src + part - 1) / part * part;
    return n_products(p) * apart(p->tiles_at_once * row) / (p->tile == 2 || p->are_bytes ? 2 : 1);
}

static int64_t own_length(const bl_winograd_t *p) {
    int64_t panel = 2 * p->lanes, products = n_products(p) * apart(p->tiles_of_task * panel);
    if (p->are_bytes)
        return products + n_products(p) * apart(BL_SRC_BYTES_AT_ONCE * panel) / 2 + 16 * p->tiles_of_task * panel;
    if (p->are_transformed) return products;
    int64_t weights = p->tile == 2 ? apart(BL_PAIRED_SRC_AT_ONCE * panel) / 2 : apart(BL_SRC_AT_ONCE * panel);
    return products + n_products(p) * weights;
}

int64_t bl_winograd_scratchpad(const bl_winograd_t *problem) {
    int64_t n_sources = problem->is_apart ? problem->n_threads : 1;
    int64_t length = n_sources * sources_length(problem) + problem->n_threads * own_length(problem);
    return length * (int64_t)sizeof(float);
}

#if defined(__x86_64__)
typedef struct {
    const bl_winograd_t *problem;
    bl_buffers_t buffers;
    void (*work)(const bl_winograd_t *, const bl_buffers_t *, int, int);
} bl_winograd_run_t;

static void work(void *given) {
    const bl_winograd_run_t *run = given;
    run->work(run->problem, &run->buffers, omp_get_thread_num(), omp_get_num_threads());
}

static int run_all(const bl_winograd_t *p, void *const *data) {
    float *scratchpad = data[BL_SCRATCHPAD];
    float *own = scratchpad + (p->is_apart ? p->n_threads : 1) * sources_length(p);
    bl_buffers_t buffers = {.src = data[BL_SRC], .weights = data[BL_WEIGHTS], .bias = data[BL_BIAS], .addend = data[BL_ADDEND],
        .dst = data[BL_DST], .sources = scratchpad, .own = own, .sources_length = sources_length(p), .own_length = own_length(p),
        .bytes = bytes_of(data + BL_SRC_SCALE, p->src_is_signed, p->dst_is_signed)};
    bl_winograd_run_t run = {p, buffers, NULL};
    if (p->tile == 2)
        run.work = p->is_apart ? work_apart_pairs : work_together_pairs;
    else if (p->are_bytes && p->lanes == 16)
        run.work = p->is_apart ? work_apart_bytes_16 : work_together_bytes_16;
    else if (p->are_bytes)
        run.work = p->is_apart ? work_apart_bytes_8 : work_together_bytes_8;
    else if (p->is_bf16)
        run.work = p->is_apart ? work_apart_bf16 : work_together_bf16;
    else if (p->lanes == 16)
        run.work = p->is_apart ? work_apart_16 : work_together_16;
    else
        run.work = p->is_apart ? work_apart_8 : work_together_8;
    if (!run.work) return 3; /* dnnl_unimplemented */
    bl_parallel(p->n_threads, work, &run);
    return 0;
}
#endif

BL_X86_ENTRY(bl_winograd, BL_N_ARGS, run_all)
