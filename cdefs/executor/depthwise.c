#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "winograd.h"

#include "arguments.h"
#include "depthwise.h"
#include "regions.h"

#if defined(__x86_64__)
#include "bytes.h"

/* Results side by side: a divisor of the widths of most images. */
enum { BL_AT_ONCE = 7 };

typedef struct {
    const char *src, *addend;
    const void *weights;
    const float *bias;
    char *dst;
    bl_bytes_t bytes; /* if they are */
} bl_buffers_t;

/* A block of channels in a row of results. Distances are in bytes. */
typedef struct {
    int64_t n;                /* channels that are read and written */
    int is_apart, is_half;    /* whether its halves lie apart, and there is but the first, which is read twice */
    int64_t apart, dst_apart; /* from the first half to the second */
    int64_t row, pixel, dst_pixel;
    int64_t first, last;      /* rows of the window that are in the source */
    const float *weights;     /* [row][tap], and in them vectors that are `vector` apart */
    int64_t vector, pairs;            /* floats; pairs: from there to those of each row beside those of the next */
    const float *bias;
    const float *scales;              /* of bytes: of their products */
    bl_bytes_t bytes;
} bl_line_t;

static int64_t offset_of(const bl_place_t *place, int64_t channel) {
    return channel / place->channels * place->group + channel % place->channels;
}

/* Holds a value in a register from here on, so that it is neither read again nor made another. */
#define KEEP(condition, where, value)              \
    do {                                           \
        if (condition) __asm__ volatile("" : "+" where(value)); \
    } while (0)

/* f32 for AVX2, in blocks of a vector. */
#define LANES 8
#define VECTORS 1
#define SIZE 4
#define HAS_PAIRS 0
#define TARGET TARGET_8
#define OWN(name) name##_8

typedef vec_8 raw_8;

INLINE TARGET vec_8 floats_8(const float *from, int64_t n, int v) {
    (void)v;
    return first_of_8(from, n);
}

INLINE TARGET vec_8 read_8(const bl_line_t *line, const char *at, int64_t apart) {
    (void)line, (void)apart;
    return *(const vec_8 *)at;
}

INLINE TARGET vec_8 widen_8(vec_8 raw, int v) {
    (void)v;
    return raw;
}

INLINE TARGET void write_8(const bl_line_t *line, char *at, const vec_8 *result) {
    (void)line;
    *(vec_8 *)at = *result;
}

#include "depthwise_kernel.h"
#include "depthwise_bytes.h"

/* f32 for AVX-512. */
#define LANES 16
#define VECTORS 2
#define SIZE 4
#define HAS_PAIRS 0
#define TARGET TARGET_16
#define OWN(name) name##_16

typedef struct {
    vec_16 v[2];
} raw_16;

INLINE TARGET uint32_t mask_of(int64_t n) { return (uint32_t)((UINT64_C(1) << n) - 1); }

/* Of a block that has no second half, the first twice. */
INLINE TARGET vec_16 floats_16(const float *from, int64_t n, int v) {
    int64_t first = v && n > 16 ? 16 : 0;
    return (vec_16)_mm512_maskz_loadu_ps((__mmask16)(mask_of(n) >> first), from + first);
}

INLINE TARGET raw_16 read_16(const bl_line_t *line, const char *at, int64_t apart) {
    uint32_t mask = mask_of(line->n), second = line->is_apart ? mask : mask >> 16;
    const char *other = at + (line->is_apart ? apart : 64);
    return (raw_16){{(vec_16)_mm512_maskz_loadu_ps((__mmask16)mask, at), (vec_16)_mm512_maskz_loadu_ps((__mmask16)second, other)}};
}

INLINE TARGET vec_16 widen_16(raw_16 raw, int v) { return raw.v[v]; }

INLINE TARGET void write_16(const bl_line_t *line, char *at, const vec_16 *result) {
    uint32_t mask = mask_of(line->n), second = line->is_apart ? mask : mask >> 16;
    _mm512_mask_storeu_ps(at, (__mmask16)mask, (__m512)result[0]);
    if (line->is_half) return;
    _mm512_mask_storeu_ps(at + (line->is_apart ? line->dst_apart : 64), (__mmask16)second, (__m512)result[1]);
}

#include "depthwise_kernel.h"

/* bf16 for AVX-512: 32 channels of a pixel, the first of each 8 in one vector and the others in another. */
typedef __m512i raw_halves;

INLINE TARGET_16 raw_halves read_halves(const bl_line_t *line, const char *at, int64_t apart) {
    uint32_t mask = mask_of(line->n);
    if (!line->is_apart) return _mm512_maskz_loadu_epi16(mask, at);
    __m256i first = _mm256_maskz_loadu_epi16((__mmask16)mask, at);
    __m256i second = _mm256_maskz_loadu_epi16((__mmask16)mask, at + apart);
    return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
}

INLINE TARGET_16 void write_halves(const bl_line_t *line, char *at, __m512i result) {
    uint32_t mask = mask_of(line->n);
    if (!line->is_apart) {
        _mm512_mask_storeu_epi16(at, mask, result);
        return;
    }
    _mm256_mask_storeu_epi16(at, (__mmask16)mask, _mm512_castsi512_si256(result));
    if (!line->is_half) _mm256_mask_storeu_epi16(at + line->dst_apart, (__mmask16)mask, _mm512_extracti64x4_epi64(result, 1));
}

INLINE TARGET_16 vec_16 widen_halves(raw_halves raw, int v) {
    __m512i zero = _mm512_setzero_si512();
    return (vec_16)(v ? _mm512_unpackhi_epi16(zero, raw) : _mm512_unpacklo_epi16(zero, raw));
}

INLINE TARGET_16 vec_16 floats_of_halves(const float *from, int64_t n, int v) {
    uint32_t mask = mask_of(n);
    __m512 first = _mm512_maskz_loadu_ps((__mmask16)mask, from);
    __m512 second = n > 16 ? _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), from + 16) : first; /* of another row, else */
    __m512i place = _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    return (vec_16)_mm512_permutex2var_ps(first, _mm512_add_epi32(place, _mm512_set1_epi32(4 * v)), second);
}

#define LANES 16
#define VECTORS 2
#define SIZE 2
#define HAS_PAIRS 0
#define TARGET TARGET_16
#define OWN(name) name##_bf16
typedef raw_halves raw_bf16;
#define read_bf16 read_halves
#define widen_bf16 widen_halves
#define floats_bf16 floats_of_halves
#define logistic_bf16 rough_logistic

INLINE TARGET void write_bf16(const bl_line_t *line, char *at, const vec_16 *result) {
    write_halves(line, at, _mm512_packus_epi32(rounded(result[0]), rounded(result[1])));
}

#include "depthwise_kernel.h"

#if __GNUC__ >= 10 || defined(__clang__)
/* The same with the instructions for it. */
#define LANES 16
#define VECTORS 2
#define SIZE 2
#define HAS_PAIRS 1
#define TARGET TARGET_BF16
#define OWN(name) name##_pairs
typedef raw_halves raw_pairs;
#define read_pairs read_halves
#define widen_pairs widen_halves
#define floats_pairs floats_of_halves
#define logistic_pairs rough_logistic

INLINE TARGET vec_16 pair_pairs(raw_pairs row, raw_pairs below, int v) {
    return (vec_16)(v ? _mm512_unpackhi_epi16(row, below) : _mm512_unpacklo_epi16(row, below));
}

INLINE TARGET vec_16 add_pair_pairs(vec_16 sum, vec_16 pair, vec_16 weights) {
    return (vec_16)_mm512_dpbf16_ps((__m512)sum, (__m512bh)pair, (__m512bh)weights);
}

INLINE TARGET void write_pairs(const bl_line_t *line, char *at, const vec_16 *result) {
    __m512i halves = (__m512i)_mm512_cvtne2ps_pbh((__m512)result[1], (__m512)result[0]);
    __m512i place = _mm512_setr_epi64(0x0003000200010000, 0x0013001200110010, 0x0007000600050004, 0x0017001600150014,
        0x000b000a00090008, 0x001b001a00190018, 0x000f000e000d000c, 0x001f001e001d001c);
    write_halves(line, at, _mm512_permutexvar_epi16(place, halves));
}

#include "depthwise_kernel.h"
#else
#define work_pairs work_bf16
#endif

/* Bytes: as words around zero, those of two rows beside each other, in sums of 32 bits that are scaled in the end. */
#define LANES 16
#define VECTORS 2
#define SIZE 1
#define HAS_PAIRS 1
#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512vnni")))
#define OWN(name) name##_bytes
typedef raw_halves raw_bytes;
#define floats_bytes floats_of_halves
#define logistic_bytes logistic_16

INLINE TARGET raw_bytes read_bytes(const bl_line_t *line, const char *at, int64_t apart) {
    uint32_t mask = mask_of(line->n);
    __m256i bytes;
    if (line->is_apart) {
        __m128i first = _mm_maskz_loadu_epi8((__mmask16)mask, at), second = _mm_maskz_loadu_epi8((__mmask16)mask, at + apart);
        bytes = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
    } else
        bytes = _mm256_maskz_loadu_epi8(mask, at);
    bytes = _mm256_xor_si256(bytes, _mm256_set1_epi8((char)line->bytes.flip));
    return _mm512_sub_epi16(_mm512_cvtepu8_epi16(bytes), _mm512_set1_epi16((int16_t)line->bytes.zero));
}

INLINE TARGET vec_16 pair_bytes(raw_bytes row, raw_bytes below, int v) {
    return (vec_16)(v ? _mm512_unpackhi_epi16(row, below) : _mm512_unpacklo_epi16(row, below));
}

INLINE TARGET vec_16 widen_bytes(raw_bytes row, int v) { return pair_bytes(row, _mm512_setzero_si512(), v); }

INLINE TARGET vec_16 add_pair_bytes(vec_16 sum, vec_16 pair, vec_16 weights) {
    return (vec_16)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)pair, (__m512i)weights);
}

INLINE TARGET void scale_bytes(const bl_line_t *line, vec_16 sums[2][BL_AT_ONCE]) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; v++) {
        vec_16 scale = *(const vec_16 *)(line->scales + v * 16), bias = *(const vec_16 *)(line->bias + v * 16);
#pragma GCC unroll 16
        for (int j = 0; j < BL_AT_ONCE; j++)
            sums[v][j] = (vec_16)_mm512_cvtepi32_ps((__m512i)sums[v][j]) * scale + bias;
    }
}

INLINE TARGET void write_bytes(const bl_line_t *line, char *at, const vec_16 *result) {
    uint32_t mask = mask_of(line->n);
    __m512i words = _mm512_packs_epi32(quanta_of_16(&line->bytes, result[0]), quanta_of_16(&line->bytes, result[1]));
    __m256i bytes = _mm512_cvtepi16_epi8(words);
    if (!line->is_apart) {
        _mm256_mask_storeu_epi8(at, mask, bytes);
        return;
    }
    _mm_mask_storeu_epi8(at, (__mmask16)mask, _mm256_castsi256_si128(bytes));
    if (!line->is_half) _mm_mask_storeu_epi8(at + line->dst_apart, (__mmask16)mask, _mm256_extracti128_si256(bytes, 1));
}

/* What bytes stand for, of a source, of the weights of a block of channels and of a result. */
INLINE TARGET void prepare_scales_bytes(
    const bl_depthwise_t *p, const bl_buffers_t *b, bl_line_t *line, int64_t channel, float *scales) {
    const float *each = b->bytes.weights_scale;
    int64_t n = p->n_channels - channel;
    for (int v = 0; v < 2; v++) {
        vec_16 zero = {0}, same = scale_of(&b->bytes, 0, 0) - zero;
        vec_16 scale = p->has_scales ? floats_bytes(each + channel, n < 32 ? n : 32, v) * b->bytes.src_scale : same;
        *(vec_16 *)(scales + v * 16) = scale;
    }
    line->scales = scales;
    line->bytes = b->bytes;
}

#include "depthwise_kernel.h"

typedef struct {
    const bl_depthwise_t *problem;
    bl_buffers_t buffers;
    void (*work)(const bl_depthwise_t *, const bl_buffers_t *, bl_range_t, int64_t, int64_t);
} bl_depthwise_run_t;

static void work(void *given) {
    const bl_depthwise_run_t *run = given;
    const bl_depthwise_t *p = run->problem;
    int64_t block = p->lanes == 16 || p->are_bytes ? 32 : 8, n_blocks = (p->n_channels + block - 1) / block;
    int64_t n_parts = (p->dst_height + p->rows_of_task - 1) / p->rows_of_task;
    bl_range_t tasks = bl_share(p->n_images * n_parts * n_blocks);
    for (int64_t task = tasks.first; task < tasks.last; task++) {
        int64_t part = task / n_blocks % n_parts;
        bl_range_t rows = {p->dst_height * part / n_parts, p->dst_height * (part + 1) / n_parts};
        run->work(p, &run->buffers, rows, task / n_blocks / n_parts, task % n_blocks * block);
    }
}

static int run_all(const bl_depthwise_t *p, void *const *data) {
    bl_depthwise_run_t run = {
        p,
        {data[BL_DEPTHWISE_SRC], data[BL_DEPTHWISE_ADDEND], data[BL_DEPTHWISE_WEIGHTS], data[BL_DEPTHWISE_BIAS],
            data[BL_DEPTHWISE_DST], bytes_of(data + BL_DEPTHWISE_SRC_SCALE, p->src_is_signed, p->dst_is_signed)},
        p->lanes == 8    ? p->are_bytes ? work_words : work_8
        : p->are_bytes   ? work_bytes
        : p->is_bf16     ? p->has_bf16 ? work_pairs : work_bf16
                         : work_16,
    };
    bl_parallel(p->n_threads, work, &run);
    return 0;
}
#endif

BL_X86_ENTRY(bl_depthwise, BL_DEPTHWISE_ARGS, run_all)
