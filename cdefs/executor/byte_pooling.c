#include <stddef.h>
#include <stdint.h>

#include "winograd.h"

#include "arguments.h"
#include "byte_pooling.h"
#include "regions.h"

typedef struct {
    const bl_byte_pooling_t *problem;
    const char *src;
    char *dst;
} bl_byte_pooling_run_t;

#if defined(__x86_64__)
#include "vectors.h"

/* Taps of a window that lie in the source along one dimension, from `first` on. */
typedef struct {
    int64_t begin, first, last;
} bl_taps_t;

static bl_taps_t taps_of(const bl_byte_pooling_t *p, int dim, int64_t result) {
    int64_t begin = result * p->strides[dim] - p->pads[dim], step = p->dilations[dim], room = p->extents[dim] - begin;
    if (begin >= 0 && room > (p->kernel[dim] - 1) * step) return (bl_taps_t){begin, 0, p->kernel[dim]};
    int64_t first = begin >= 0 ? 0 : (-begin + step - 1) / step, last = room <= 0 ? 0 : (room + step - 1) / step;
    return (bl_taps_t){begin, first, last < p->kernel[dim] ? last : p->kernel[dim]};
}

/* For AVX-512: a vector, or a part of one. */
#define TARGET TARGET_16
#define OVERLAPS 0
#define OWN(name) name##_16
typedef __m512i block_16;

INLINE TARGET block_16 least_16(const int is_signed) { return _mm512_set1_epi8(is_signed ? INT8_MIN : 0); }

INLINE TARGET __mmask64 mask_of(int64_t n) { return n < 64 ? (UINT64_C(1) << n) - 1 : ~UINT64_C(0); }

INLINE TARGET block_16 read_16(const char *at, const int64_t n) {
    return n == 64 ? _mm512_loadu_si512(at) : _mm512_maskz_loadu_epi8(mask_of(n), at);
}

INLINE TARGET void write_16(char *at, block_16 block, const int64_t n) {
    if (n == 64)
        _mm512_storeu_si512(at, block);
    else
        _mm512_mask_storeu_epi8(at, mask_of(n), block);
}

INLINE TARGET block_16 larger_16(block_16 a, block_16 b, const int is_signed) {
    return is_signed ? _mm512_max_epi8(a, b) : _mm512_max_epu8(a, b);
}

#include "byte_pooling_kernel.h"

/* For AVX2: two vectors, at the beginning and at the end, or two halves of vectors. */
#define TARGET TARGET_8
#define OVERLAPS 1
#define OWN(name) name##_8
typedef struct {
    __m256i v[2];
} block_8;

INLINE TARGET block_8 least_8(const int is_signed) {
    __m256i least = _mm256_set1_epi8(is_signed ? INT8_MIN : 0);
    return (block_8){{least, least}};
}

INLINE TARGET __m256i half_8(const char *at) { return _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)at)); }

INLINE TARGET block_8 read_8(const char *at, const int64_t n) {
    if (n < 32) return (block_8){{half_8(at), half_8(at + n - 16)}};
    return (block_8){{_mm256_loadu_si256((const __m256i *)at), _mm256_loadu_si256((const __m256i *)(at + n - 32))}};
}

INLINE TARGET void write_8(char *at, block_8 block, const int64_t n) {
    if (n < 32) {
        _mm_storeu_si128((__m128i *)at, _mm256_castsi256_si128(block.v[0]));
        _mm_storeu_si128((__m128i *)(at + n - 16), _mm256_castsi256_si128(block.v[1]));
    } else {
        _mm256_storeu_si256((__m256i *)at, block.v[0]);
        _mm256_storeu_si256((__m256i *)(at + n - 32), block.v[1]);
    }
}

INLINE TARGET block_8 larger_8(block_8 a, block_8 b, const int is_signed) {
    for (int i = 0; i < 2; i++) a.v[i] = is_signed ? _mm256_max_epi8(a.v[i], b.v[i]) : _mm256_max_epu8(a.v[i], b.v[i]);
    return a;
}

#include "byte_pooling_kernel.h"

static int run_all(const bl_byte_pooling_t *p, void *const *data) {
    bl_byte_pooling_run_t run = {p, data[BL_BYTES_SRC], data[BL_BYTES_DST]};
    bl_parallel(p->n_threads, p->lanes == 16 ? pool_rows_16 : pool_rows_8, &run);
    return 0;
}
#endif

BL_X86_ENTRY(bl_byte_pooling, BL_BYTES_ARGS, run_all)
