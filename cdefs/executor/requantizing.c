#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "winograd.h"

#include "arguments.h"
#include "regions.h"
#include "requantizing.h"

enum { BL_WORTH_SHARING = 1 << 15, BL_N_BYTES = 256 }; /* the first in bytes */

#define INLINE static inline __attribute__((always_inline))

typedef struct {
    const void *data;
    float scale;
    int32_t zero_point;
    int is_signed;
} bl_quantized_t;

/* A part's rows in the result's, or a thread's share of them; no table where bytes stay as they are. */
typedef struct {
    const uint8_t *src;
    uint8_t *dst;
    const uint8_t *table;
    int64_t n_rows, n, src_step, dst_step;
} bl_part_t;

typedef struct {
    const bl_requantizing_t *problem;
    int64_t row_nbytes;
    int is_kept[BL_MAX_PARTS];
    uint8_t tables[BL_MAX_PARTS][BL_N_BYTES];
    bl_quantized_t parts[BL_MAX_PARTS], dst;
} bl_requantized_t;

/* Half to even, then the zero point, as ONNX has it. Returns whether each byte stands for itself. */
static int tabulate(const bl_quantized_t *src, const bl_quantized_t *dst, uint8_t *table) {
    const float to_integer = 12582912.0f; /* 1.5 * 2^23: sums with it have no fraction */
    float low = (dst->is_signed ? -128.0f : 0.0f) - (float)dst->zero_point, high = low + 255.0f;
    int is_kept = 1;
    for (int i = 0; i < BL_N_BYTES; i++) {
        int32_t byte = src->is_signed ? (int8_t)i : i;
        float quotient = (float)(byte - src->zero_point) * src->scale / dst->scale;
        quotient = quotient < low ? low : quotient > high ? high : quotient;
        table[i] = (uint8_t)((int32_t)(quotient + to_integer - to_integer) + dst->zero_point);
        is_kept &= table[i] == i;
    }
    return is_kept;
}

INLINE void copy(const bl_part_t *part) {
    for (int64_t row = 0; row < part->n_rows; row++) {
        const uint8_t *src = part->src + row * part->src_step;
        uint8_t *dst = part->dst + row * part->dst_step;
        int64_t i = 0;
        for (; i + 64 <= part->n; i += 64) memcpy(dst + i, src + i, 64);
        memcpy(dst + i, src + i, (size_t)(part->n - i));
    }
}

static void translate(const bl_part_t *part) {
    if (!part->table) return copy(part);
    for (int64_t row = 0; row < part->n_rows; row++) {
        const uint8_t *src = part->src + row * part->src_step;
        uint8_t *dst = part->dst + row * part->dst_step;
        for (int64_t i = 0; i < part->n; i++) dst[i] = part->table[src[i]];
    }
}

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx512f,avx512bw,avx512vbmi"))) static void translate_64(const bl_part_t *part) {
    if (!part->table) return copy(part);
    __m512i table[4];
    for (int k = 0; k < 4; k++) table[k] = _mm512_loadu_si512(part->table + 64 * k);
    for (int64_t row = 0; row < part->n_rows; row++) {
        const uint8_t *src = part->src + row * part->src_step;
        uint8_t *dst = part->dst + row * part->dst_step;
        for (int64_t i = 0; i < part->n; i += 64) {
            __mmask64 mask = part->n - i >= 64 ? ~0ull : ~0ull >> (64 - (part->n - i));
            __m512i bytes = _mm512_maskz_loadu_epi8(mask, src + i);
            __m512i low = _mm512_permutex2var_epi8(table[0], bytes, table[1]);
            __m512i high = _mm512_permutex2var_epi8(table[2], bytes, table[3]);
            _mm512_mask_storeu_epi8(dst + i, mask, _mm512_mask_blend_epi8(_mm512_movepi8_mask(bytes), low, high));
        }
    }
}

/* Sixteen tables of sixteen. Those of the upper half look up 0 where the highest bit is not set, those of the lower one where it
   is; among eight others the three bits below it choose. */
__attribute__((target("avx2"))) static void translate_32(const bl_part_t *part) {
    if (!part->table) return copy(part);
    for (int64_t row = 0; row < part->n_rows; row++) {
        const uint8_t *src = part->src + row * part->src_step;
        uint8_t *dst = part->dst + row * part->dst_step;
        int64_t i = 0;
        for (; i + 32 <= part->n; i += 32) {
            __m256i bytes = _mm256_loadu_si256((const __m256i *)(src + i)), found[8];
            __m256i others = _mm256_xor_si256(bytes, _mm256_set1_epi8((char)0x80));
#pragma GCC unroll 8
            for (int k = 0; k < 8; k++) {
                const __m128i *sixteenth = (const __m128i *)(part->table + 16 * k);
                __m256i lower = _mm256_broadcastsi128_si256(_mm_loadu_si128(sixteenth));
                __m256i upper = _mm256_broadcastsi128_si256(_mm_loadu_si128(sixteenth + 8));
                found[k] = _mm256_or_si256(_mm256_shuffle_epi8(lower, bytes), _mm256_shuffle_epi8(upper, others));
            }
#pragma GCC unroll 3
            for (int bit = 0; bit < 3; bit++)
#pragma GCC unroll 4
                for (int k = 0; k < 8; k += 2 << bit)
                    found[k] = _mm256_blendv_epi8(found[k], found[k + (1 << bit)], _mm256_slli_epi16(bytes, 3 - bit));
            _mm256_storeu_si256((__m256i *)(dst + i), found[0]);
        }
        for (; i < part->n; i++) dst[i] = part->table[src[i]];
    }
}
#endif

typedef void (*bl_translate_t)(const bl_part_t *);

static bl_translate_t fastest(int lanes) {
#if defined(__x86_64__)
    if (lanes == 16 && __builtin_cpu_supports("avx512vbmi")) return translate_64;
    if (lanes >= 8) return translate_32;
#endif
    (void)lanes;
    return translate;
}

/* By rows, or by columns of the only ones. */
static void requantize(void *given) {
    const bl_requantized_t *r = given;
    const bl_requantizing_t *p = r->problem;
    bl_translate_t run = fastest(p->lanes);
    int has_rows = p->n_rows >= p->n_threads;
    bl_range_t rows = has_rows ? bl_share(p->n_rows) : (bl_range_t){0, p->n_rows};
    uint8_t *dst = (uint8_t *)r->dst.data + rows.first * r->row_nbytes;
    for (int i = 0; i < p->n_parts; dst += p->nbytes[i++]) {
        bl_range_t columns = has_rows ? (bl_range_t){0, p->nbytes[i]} : bl_share(p->nbytes[i]);
        bl_part_t part = {
            .src = (const uint8_t *)r->parts[i].data + rows.first * p->nbytes[i] + columns.first,
            .dst = dst + columns.first,
            .table = r->is_kept[i] ? NULL : r->tables[i],
            .n_rows = rows.last - rows.first,
            .n = columns.last - columns.first,
            .src_step = p->nbytes[i],
            .dst_step = r->row_nbytes,
        };
        run(&part);
    }
}

static int read(bl_get_data_t get_data, const bl_arg_t *args, int is_signed, bl_quantized_t *found) {
    void *data[BL_REQUANTIZE_ARGS] = {0};
    int status = bl_find_data(get_data, args, BL_REQUANTIZE_ARGS, data);
    if (status) return status;
    const float *scale = data[BL_REQUANTIZE_SCALE];
    const int32_t *zero_point = data[BL_REQUANTIZE_ZERO_POINT];
    *found = (bl_quantized_t){data[BL_REQUANTIZE_SRC], scale ? *scale : 1.0f, zero_point ? *zero_point : 0, is_signed};
    return 0;
}

static int run_all(bl_requantized_t *r) {
    const bl_requantizing_t *p = r->problem;
    bl_parallel(p->n_rows * r->row_nbytes >= BL_WORTH_SHARING ? p->n_threads : 1, requantize, r);
    return 0;
}

int bl_requantizing(const void *problem, void *stream, int n_args, const void *args) {
    (void)stream, (void)n_args;
    const bl_requantizing_t *p = problem;
    const bl_arg_t *given = args;
    bl_requantized_t requantized;
    requantized.problem = p, requantized.row_nbytes = 0;
    int status = read(p->get_data, given + BL_REQUANTIZE_ARGS * p->n_parts, p->dst_is_signed, &requantized.dst);
    for (int i = 0; i < p->n_parts && !status; i++) {
        bl_quantized_t *part = &requantized.parts[i];
        status = read(p->get_data, given + BL_REQUANTIZE_ARGS * i, p->is_signed[i], part);
        requantized.is_kept[i] = !status && tabulate(part, &requantized.dst, requantized.tables[i]);
        requantized.row_nbytes += p->nbytes[i];
    }
    return status ? status : run_all(&requantized);
}

int bl_lookup(const void *problem, void *stream, int n_args, const void *args) {
    (void)stream, (void)n_args;
    const bl_requantizing_t *p = problem;
    void *data[BL_LOOKUP_ARGS] = {0};
    int status = bl_find_data(p->get_data, args, BL_LOOKUP_ARGS, data);
    if (status) return status;
    bl_requantized_t found;
    found.problem = p, found.row_nbytes = p->nbytes[0], found.is_kept[0] = 0;
    found.parts[0].data = data[BL_LOOKUP_SRC], found.dst.data = data[BL_LOOKUP_DST];
    memcpy(found.tables[0], data[BL_LOOKUP_TABLE], BL_N_BYTES);
    return run_all(&found);
}
