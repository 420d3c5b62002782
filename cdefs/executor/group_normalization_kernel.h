/* Group normalisation by vectors of LANES floats. Included once for each instruction set, with LANES, TARGET and OWN(name)
   defined. */

typedef float OWN(vec) __attribute__((vector_size(LANES * 4), aligned(4)));
typedef int32_t OWN(ints) __attribute__((vector_size(LANES * 4), aligned(4)));
typedef uint32_t OWN(bits) __attribute__((vector_size(LANES * 4), aligned(4)));
typedef uint16_t OWN(halves) __attribute__((vector_size(LANES * 2), aligned(2)));
#define vec OWN(vec)
#define ints OWN(ints)
#define bits OWN(bits)
#define halves OWN(halves)
#define INLINE_HERE static inline __attribute__((always_inline)) TARGET

INLINE_HERE vec OWN(load)(const char *data, int64_t place, int is_bf16) {
    if (!is_bf16) return *(const vec *)((const float *)data + place);
    return (vec)(__builtin_convertvector(*(const halves *)((const uint16_t *)data + place), bits) << 16);
}

INLINE_HERE vec OWN(pick)(ints where, vec value, vec other) { return (vec)((where & (ints)value) | (~where & (ints)other)); }

INLINE_HERE void OWN(store)(char *data, int64_t place, vec value, int is_bf16) {
    if (!is_bf16) {
        *(vec *)((float *)data + place) = value;
        return;
    }
    bits given = (bits)value, rounded = given + 0x7fff + (given >> 16 & 1);
    bits kept = (bits)OWN(pick)(value != value, (vec)(given | 0x400000), (vec)rounded); /* a NaN stays one */
    *(halves *)((uint16_t *)data + place) = __builtin_convertvector(kept >> 16, halves);
}

INLINE_HERE double OWN(total)(vec value) {
    double sum = 0;
    for (int i = 0; i < LANES; i++) sum += value[i];
    return sum;
}

/* Fewer elements than a vector has, and behind them `rest`. */
INLINE_HERE vec OWN(load_some)(const char *data, int64_t place, int64_t n, float rest, int is_bf16) {
    vec value = rest - (vec){0};
    for (int64_t i = 0; i < n; i++) value[i] = value_at(data, place + i, is_bf16);
    return value;
}

/* Of elements side by side. First a mean that may be some roundings off, then how far it is off and the squares. */
INLINE_HERE bl_moments_t OWN(fold_side)(const char *src, int64_t n, int is_bf16) {
    enum { STEP = 4 * LANES };
    vec sum[4] = {0}, off[4] = {0}, square[4] = {0};
    int64_t whole = n / STEP * STEP, i = 0;
    for (; i < whole; i += STEP)
        for (int k = 0; k < 4; k++) sum[k] += OWN(load)(src, i + k * LANES, is_bf16);
    for (; i + LANES <= n; i += LANES) sum[0] += OWN(load)(src, i, is_bf16);
    if (i < n) sum[1] += OWN(load_some)(src, i, n - i, 0, is_bf16);
    float near = (float)(OWN(total)((sum[0] + sum[1]) + (sum[2] + sum[3])) / (double)n);
    for (i = 0; i < whole; i += STEP)
        for (int k = 0; k < 4; k++) {
            vec apart = OWN(load)(src, i + k * LANES, is_bf16) - near;
            off[k] += apart;
            square[k] += apart * apart;
        }
    for (; i < n; i += LANES) {
        vec value = i + LANES <= n ? OWN(load)(src, i, is_bf16) : OWN(load_some)(src, i, n - i, near, is_bf16);
        off[0] += value - near;
        square[0] += (value - near) * (value - near);
    }
    return moments(n, near, OWN(total)((off[0] + off[1]) + (off[2] + off[3])),
                   OWN(total)((square[0] + square[1]) + (square[2] + square[3])));
}

/* Adds `n` vectors of each row, minus `near`, and their squares. */
INLINE_HERE void OWN(add_rows)(const char *src, int64_t n_rows, int64_t row, int n, const float *near, float *sums,
                               float *squares, int is_bf16) {
    vec middle[4], sum[4], square[4];
    for (int k = 0; k < n; k++) {
        middle[k] = *(const vec *)(near + k * LANES);
        sum[k] = *(const vec *)(sums + k * LANES);
        square[k] = *(const vec *)(squares + k * LANES);
    }
    for (int64_t i = 0; i < n_rows; i++)
        for (int k = 0; k < n; k++) {
            vec apart = OWN(load)(src, i * row + k * LANES, is_bf16) - middle[k];
            sum[k] += apart;
            square[k] += apart * apart;
        }
    for (int k = 0; k < n; k++) {
        *(vec *)(sums + k * LANES) = sum[k];
        *(vec *)(squares + k * LANES) = square[k];
    }
}

/* Adds elements minus `near` to columns, element i to column i % period, and their squares. */
INLINE_HERE void OWN(add_columns)(const char *src, int64_t n, int64_t period, const float *near, float *sums,
                                  float *squares, int is_bf16) {
    int64_t n_rows = n / period, column = 0, size = is_bf16 ? 2 : 4;
    for (; n_rows && column + 4 * LANES <= period; column += 4 * LANES)
        OWN(add_rows)(src + column * size, n_rows, period, 4, near + column, sums + column, squares + column, is_bf16);
    for (; n_rows && column < period; column += LANES)
        OWN(add_rows)(src + column * size, n_rows, period, 1, near + column, sums + column, squares + column, is_bf16);
    for (int64_t i = n_rows * period, j = 0; i < n; i++, j++) {
        float apart = value_at(src, i, is_bf16) - near[j];
        sums[j] += apart;
        squares[j] += apart * apart;
    }
}

/* Of some pixels of a block whose lanes are of several groups: for each of those. `columns` holds three periods. */
INLINE_HERE void OWN(fold_lanes)(const bl_group_normalization_t *p, bl_plan_t plan, const char *src, int64_t block,
                                 int64_t n_pixels, float *columns, bl_moments_t *found, int is_bf16) {
    float *near = columns, *sums = columns + plan.n_columns, *squares = columns + 2 * plan.n_columns;
    int64_t copies = plan.n_columns % p->n_lanes ? 1 : plan.n_columns / p->n_lanes;
    bl_range_t groups = groups_of(p, block);
    memset(columns, 0, sizeof(float) * 3 * (size_t)plan.n_columns);
    for (int is_second = 0; is_second < 2; is_second++) {
        if (plan.n_columns == copies * p->n_lanes)
            OWN(add_columns)(src, n_pixels * p->n_lanes, plan.n_columns, near, sums, squares, is_bf16);
        else
            for (int64_t pixel = 0; pixel < n_pixels; pixel++)
                OWN(add_columns)(src + pixel * p->n_lanes * p->itemsize, p->n_lanes, plan.n_columns, near, sums, squares,
                                 is_bf16);
        for (int64_t group = groups.first; group < groups.last; group++) {
            bl_range_t lanes = lanes_of(p, block, group);
            int64_t n = (lanes.last - lanes.first) * n_pixels;
            double sum = 0, square = 0;
            for (int64_t copy = 0; copy < copies; copy++)
                for (int64_t i = copy * p->n_lanes + lanes.first; i < copy * p->n_lanes + lanes.last; i++) {
                    sum += sums[i];
                    square += squares[i];
                }
            if (is_second) {
                found[group - groups.first] = moments(n, near[lanes.first], sum, square);
                continue;
            }
            for (int64_t copy = 0; copy < copies; copy++)
                for (int64_t i = copy * p->n_lanes + lanes.first; i < copy * p->n_lanes + lanes.last; i++) {
                    near[i] = (float)(sum / (double)n);
                    sums[i] = squares[i] = 0;
                }
        }
    }
}

INLINE_HERE vec OWN(result)(const bl_group_normalization_t *p, vec value, vec middle, vec scale, vec shift, int is_bent) {
    value = (value - middle) * scale + shift;
    if (!is_bent) return value;
    value = OWN(pick)(value < 0, value * p->slope, value);
    value = OWN(pick)(value < p->low, p->low - (vec){0}, value);
    return OWN(pick)(value > p->high, p->high - (vec){0}, value);
}

/* Elements side by side, the coefficients of element i being those of i % period. */
INLINE_HERE void OWN(apply_side)(const bl_group_normalization_t *p, const char *src, char *dst, int64_t n, int64_t period,
                                 const bl_pattern_t *by, int is_bf16, int is_bent) {
    int64_t i = 0, j = 0;
    if (period == LANES) { /* in registers */
        vec middle = *(const vec *)by->middle, scale = *(const vec *)by->scale, shift = *(const vec *)by->shift;
        for (; i + LANES <= n; i += LANES)
            OWN(store)(dst, i, OWN(result)(p, OWN(load)(src, i, is_bf16), middle, scale, shift, is_bent), is_bf16);
    } else
        for (; i + LANES <= n; i += LANES) {
            vec middle = *(const vec *)(by->middle + j), scale = *(const vec *)(by->scale + j);
            vec shift = *(const vec *)(by->shift + j);
            OWN(store)(dst, i, OWN(result)(p, OWN(load)(src, i, is_bf16), middle, scale, shift, is_bent), is_bf16);
            j = j + LANES < period ? j + LANES : 0;
        }
    if (i == n) return;
    vec middle = *(const vec *)(by->middle + j), scale = *(const vec *)(by->scale + j), shift = *(const vec *)(by->shift + j);
    vec value = OWN(result)(p, OWN(load_some)(src, i, n - i, 0, is_bf16), middle, scale, shift, is_bent);
    char last[4 * LANES];
    OWN(store)(last, 0, value, is_bf16);
    memcpy(dst + i * (is_bf16 ? 2 : 4), last, (size_t)((n - i) * (is_bf16 ? 2 : 4)));
}

/* The coefficients of some lanes of a block, over and over again until there are `period`. */
INLINE_HERE void OWN(make_pattern)(const bl_group_normalization_t *p, const bl_set_t *sets, void *const *data, int64_t image,
                                   int64_t channel, int64_t n, int64_t period, bl_pattern_t *by) {
    int64_t n_known = p->n_channels - channel < n ? p->n_channels - channel : n;
    for (int64_t i = 0; i < n_known;) {
        int64_t group = (channel + i) / p->group, end = (group + 1) * p->group - channel;
        const bl_set_t *set = sets + image * (p->n_channels / p->group) + group;
        for (end = end < n_known ? end : n_known; i < end; i++) {
            by->middle[i] = set->middle;
            by->scale[i] = set->scale;
            by->shift[i] = set->shift;
        }
    }
    for (int v = 0; v < p->n_vectors; v++) {
        const bl_vector_t *vector = &p->vectors[v];
        float numbers[BL_LONGEST_PATTERN];
        read_numbers(vector, data[BL_NORM_VECTORS + v], image, channel, n_known, numbers);
        if (vector->is_added)
            for (int64_t i = 0; i < n_known; i++) by->shift[i] += numbers[i];
        else
            for (int64_t i = 0; i < n_known; i++) {
                by->scale[i] *= numbers[i];
                by->shift[i] *= numbers[i];
            }
    }
    for (int64_t i = n_known; i < n; i++) by->middle[i] = by->scale[i] = by->shift[i] = 0; /* padding, which stays zero */
    for (int64_t i = n; i < period; i++) {
        by->middle[i] = by->middle[i - n];
        by->scale[i] = by->scale[i - n];
        by->shift[i] = by->shift[i - n];
    }
}

INLINE_HERE void OWN(apply_to)(const bl_group_normalization_t *p, bl_plan_t plan, const bl_set_t *sets, void *const *data,
                               int64_t task, int is_bf16, int is_bent) {
    int64_t line = task / plan.tasks_of_block, in_block = task % plan.tasks_of_block;
    int64_t pixel = in_block / plan.parts_of_lanes * plan.pixels_at_once;
    int64_t lane = in_block % plan.parts_of_lanes * BL_LONGEST_PATTERN;
    int64_t n_pixels = least(plan.pixels_at_once, p->n_pixels - pixel);
    int64_t n_lanes = least(plan.parts_of_lanes > 1 ? BL_LONGEST_PATTERN : p->n_lanes, p->n_lanes - lane);
    int64_t image = line / p->n_blocks, channel = line % p->n_blocks * p->n_lanes + lane;
    int64_t at = ((line * p->n_pixels + pixel) * p->n_lanes + lane) * p->itemsize;
    const char *src = (const char *)data[BL_NORM_SRC] + at;
    char *dst = (char *)data[BL_NORM_DST] + at;
    bl_pattern_t by;
    if (plan.period <= BL_LONGEST_PATTERN) {
        OWN(make_pattern)(p, sets, data, image, channel, n_lanes, plan.period, &by);
        OWN(apply_side)(p, src, dst, n_pixels * n_lanes, plan.period, &by, is_bf16, is_bent);
        return;
    }
    OWN(make_pattern)(p, sets, data, image, channel, n_lanes, BL_LONGEST_PATTERN, &by);
    for (int64_t i = 0; i < n_pixels; i++) {
        int64_t place = i * p->n_lanes * p->itemsize;
        OWN(apply_side)(p, src + place, dst + place, n_lanes, BL_LONGEST_PATTERN, &by, is_bf16, is_bent);
    }
}

TARGET static void OWN(fold)(const bl_group_normalization_t *p, bl_plan_t plan, const char *src, int64_t task, float *columns,
                             bl_moments_t *found) {
    int64_t line = task / plan.pieces_of_line, first = task % plan.pieces_of_line * plan.piece;
    int64_t n = plan.line - first < plan.piece ? plan.line - first : plan.piece;
    const char *from = src + (line * plan.line + first) * plan.elements * p->itemsize;
    bl_moments_t *to = found + task * plan.n_slots;
    if (p->is_together)
        *to = p->itemsize == 2 ? OWN(fold_side)(from, n, 1) : OWN(fold_side)(from, n, 0);
    else if (p->itemsize == 2)
        OWN(fold_lanes)(p, plan, from, line % p->n_blocks, n, columns, to, 1);
    else
        OWN(fold_lanes)(p, plan, from, line % p->n_blocks, n, columns, to, 0);
}

TARGET static void OWN(apply)(const bl_group_normalization_t *p, bl_plan_t plan, const bl_set_t *sets, void *const *data,
                              int64_t task) {
    int is_bent = p->slope != 1 || p->low > -INFINITY || p->high < INFINITY;
    if (p->itemsize == 2)
        is_bent ? OWN(apply_to)(p, plan, sets, data, task, 1, 1) : OWN(apply_to)(p, plan, sets, data, task, 1, 0);
    else
        is_bent ? OWN(apply_to)(p, plan, sets, data, task, 0, 1) : OWN(apply_to)(p, plan, sets, data, task, 0, 0);
}

#undef vec
#undef ints
#undef bits
#undef halves
#undef INLINE_HERE
#undef LANES
#undef TARGET
#undef OWN
