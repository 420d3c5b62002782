/* Max pooling by vectors of LANES floats. Included once for each instruction set, with LANES, TARGET, OWN(name) and these
   defined: VEC, INTS and MASK; LOAD(p), LOAD_BF16(p), STORE(p, v), STORE_BF16(p, v), SET(x) and of them those of INTS,
   LOAD_INTS(p), STORE_INTS(p, v), SET_INTS(x), FROM(x): x, x + 1, ...; EVEN(p): every other float; LARGER(v, w), NaN if one is; IS_NAN(v);
   IS_ABOVE(v, w): v > w, or v is NaN and w is not; IS_SAME(v, w): equal, or NaN both; IS_BELOW(i, j), of INTS;
   EITHER(m, n), BOTH(m, n), PICK(m, v, w): v where m is; PICK_INTS. */

#define INLINE_HERE static inline __attribute__((always_inline)) TARGET

INLINE_HERE VEC OWN(load)(const char *data, int64_t place, int is_bf16) {
    return is_bf16 ? LOAD_BF16((const uint16_t *)data + place) : LOAD((const float *)data + place);
}

INLINE_HERE void OWN(store)(char *data, int64_t place, VEC value, int is_bf16) {
    if (is_bf16)
        STORE_BF16((uint16_t *)data + place, value);
    else
        STORE((float *)data + place, value);
}

/* `n` vectors of results that see as much of the source: `apart` there, in numbers, in the results and in `where`. */
INLINE_HERE void OWN(across)(const bl_window_t *window, const char *src, char *dst, int32_t *where, int n,
    const int64_t *apart, int is_bf16, int is_indexed) {
    VEC best[BL_VECTORS];
    INTS found[BL_VECTORS];
    for (int i = 0; i < n; i++) {
        best[i] = SET(-INFINITY);
        found[i] = SET_INTS(window->first + i * apart[1]);
    }
    for (int64_t d = 0; d < window->taps[0]; d++)
        for (int64_t h = 0; h < window->taps[1]; h++)
            for (int64_t w = 0; w < window->taps[2]; w++) {
                int64_t at = d * window->steps[0] + h * window->steps[1] + w * window->steps[2];
                int64_t number = window->first + d * window->numbers[0] + h * window->numbers[1] + w * window->numbers[2];
                for (int i = 0; i < n; i++) {
                    VEC value = OWN(load)(src, at + i * apart[0], is_bf16);
                    if (is_indexed) {
                        MASK is_above = IS_ABOVE(value, best[i]);
                        best[i] = PICK(is_above, value, best[i]);
                        found[i] = PICK_INTS(is_above, SET_INTS(number + i * apart[1]), found[i]);
                    } else
                        best[i] = LARGER(value, best[i]);
                }
            }
    for (int i = 0; i < n; i++) {
        OWN(store)(dst, i * apart[2], best[i], is_bf16);
        if (is_indexed) STORE_INTS(where + i * LANES, found[i]);
    }
}

/* The largest of some rows, element by element, and the numbers of those. */
INLINE_HERE void OWN(fold_rows)(const bl_window_t *window, const char *src, int64_t at, float *best, int32_t *found,
    int is_bf16, int is_indexed) {
    VEC largest = SET(-INFINITY);
    INTS number = SET_INTS(INT32_MAX);
    for (int64_t d = 0; d < window->taps[0]; d++)
        for (int64_t h = 0; h < window->taps[1]; h++) {
            VEC value = OWN(load)(src, d * window->steps[0] + h * window->steps[1] + at, is_bf16);
            if (is_indexed) {
                MASK is_above = d + h ? IS_ABOVE(value, largest) : IS_SAME(value, value);
                largest = PICK(is_above, value, largest);
                int64_t first = window->first + d * window->numbers[0] + h * window->numbers[1] + at;
                number = PICK_INTS(is_above, FROM(first), number);
            } else
                largest = LARGER(value, largest);
        }
    STORE(best, largest);
    if (is_indexed) STORE_INTS(found, number);
}

/* The largest of each window of a row that is folded: lanes are windows. */
INLINE_HERE void OWN(fold_columns)(const float *row, const int32_t *numbers, int64_t step, int64_t n_taps, int64_t apart,
    float *best, int32_t *where, int is_indexed) {
    VEC largest = SET(-INFINITY);
    INTS found = SET_INTS(INT32_MAX);
    for (int64_t tap = 0; tap < n_taps; tap++) {
        const float *from = row + tap * apart;
        const int32_t *number_from = numbers + tap * apart;
        float gathered[LANES] = {0};
        int32_t gathered_numbers[LANES] = {0};
        if (step > 2)
            for (int i = 0; i < LANES; i++) {
                gathered[i] = from[i * step];
                gathered_numbers[i] = is_indexed ? number_from[i * step] : 0;
            }
        VEC value = step == 1 ? LOAD(from) : step == 2 ? EVEN(from) : LOAD(gathered);
        if (is_indexed) {
            INTS number = step == 1 ? LOAD_INTS(number_from)
                : step == 2         ? AS_INTS(EVEN((const float *)number_from))
                                    : LOAD_INTS(gathered_numbers);
            MASK is_earlier = BOTH(IS_SAME(value, largest), IS_BELOW(number, found));
            MASK is_better = EITHER(IS_ABOVE(value, largest), is_earlier);
            largest = PICK(is_better, value, largest);
            found = PICK_INTS(is_better, number, found);
        } else
            largest = LARGER(value, largest);
    }
    STORE(best, largest);
    if (is_indexed) STORE_INTS(where, found);
}

/* Results of one row by lines across it: several vectors of a line, or of neighbouring lines. */
INLINE_HERE void OWN(pool_across)(const bl_max_pooling_t *p, bl_task_t task, int is_bf16, int is_indexed) {
    int32_t where[BL_VECTORS * LANES];
    int size = is_bf16 ? 2 : 4;
    int64_t end = task.first + BL_VECTORS * LANES;
    if (p->padded_lanes - end < LANES) end = p->padded_lanes;
    int64_t in_line[] = {LANES, 0, LANES};
    int64_t in_row[] = {p->strides[2] * p->src.spatial[2], p->strides[2] * p->scanned[2], p->dst.spatial[2]};
    for (int64_t lane = task.first; lane < end;) {
        int n_lanes = end - lane >= BL_VECTORS * LANES ? BL_VECTORS * LANES : LANES;
        int64_t from = lane + n_lanes > end ? end - n_lanes : lane; /* some are done twice */
        lane = from + n_lanes;
        for (int64_t column = 0; column < p->results[2];) {
            bl_window_t window = task.window, last = task.window;
            narrow(p, &window, 2, column);
            narrow(p, &last, 2, column + BL_VECTORS - 1);
            int is_row = n_lanes == LANES && column + BL_VECTORS <= p->results[2] && window.taps[2] == p->kernel[2] &&
                         last.taps[2] == p->kernel[2];
            const char *src = task.src + (window.corner + from) * size;
            char *dst = task.dst + (column * p->dst.spatial[2] + from) * size;
            if (n_lanes > LANES)
                OWN(across)(&window, src, dst, where, BL_VECTORS, in_line, is_bf16, is_indexed);
            else if (is_row)
                OWN(across)(&window, src, dst, where, BL_VECTORS, in_row, is_bf16, is_indexed);
            else
                OWN(across)(&window, src, dst, where, 1, in_line, is_bf16, is_indexed);
            int n_columns = is_row ? BL_VECTORS : 1;
            /* Of the zeros behind the lanes the largest is zero; of none it is -inf. */
            if (window.taps[0] <= 0 || window.taps[1] <= 0 || window.taps[2] <= 0)
                for (int i = 0; i < n_columns; i++)
                    for (int64_t j = task.n_lanes > from ? task.n_lanes - from : 0; j < n_lanes; j++)
                        put(dst, i * p->dst.spatial[2] + j, 0.0f, is_bf16);
            for (int i = 0; i < n_columns && is_indexed; i++) {
                int64_t *indices = task.indices + (column + i) * p->indices.spatial[2] + from;
                for (int j = 0; j < n_lanes; j++)
                    indices[j] = from + j < task.n_lanes
                        ? task.number + (from + j) * p->number.lane + numbered(p, where[i * LANES + j])
                        : 0;
            }
            column += n_columns;
        }
    }
}

/* Results of one row by lines along it: first from top to bottom, then from left to right. */
INLINE_HERE void OWN(pool_along)(const bl_max_pooling_t *p, bl_task_t task, int is_bf16, int is_indexed) {
    float row[BL_ROW + 2 * LANES * BL_MAX_STRIDE], largest[LANES];
    int32_t numbers[BL_ROW + 2 * LANES * BL_MAX_STRIDE], where[LANES];
    int64_t stride = p->strides[2], reach = (p->kernel[2] - 1) * p->dilations[2] + 1, width = p->extents[2];
    int64_t n_at_once = (BL_ROW - reach) / stride + 1;
    for (int64_t done = 0; done < p->results[2]; done += n_at_once) {
        int64_t n = p->results[2] - done < n_at_once ? p->results[2] - done : n_at_once;
        int64_t left = done * stride - p->pads[2], right = left + (n - 1) * stride + reach;
        int64_t begin = left > 0 ? left : 0, end = right < width ? right : width;
        float *at = row + LANES - left; /* of column 0 */
        int32_t *number_at = numbers + LANES - left;
        for (int64_t x = left; x < right; x++)
            if (x < 0 || x >= width) {
                at[x] = -INFINITY;
                number_at[x] = INT32_MAX;
            }
        for (int64_t x = begin; x < end; x += LANES) {
            int64_t from = x + LANES > width ? width - LANES : x;
            OWN(fold_rows)(&task.window, task.src + task.window.corner * (is_bf16 ? 2 : 4), from, at + from, number_at + from, is_bf16, is_indexed);
        }
        for (int64_t i = 0; i < n; i += LANES) {
            const float *first = at + left + i * stride;
            const int32_t *number = number_at + left + i * stride;
            if (stride == 1)
                OWN(fold_columns)(first, number, 1, p->kernel[2], p->dilations[2], largest, where, is_indexed);
            else if (stride == 2)
                OWN(fold_columns)(first, number, 2, p->kernel[2], p->dilations[2], largest, where, is_indexed);
            else
                OWN(fold_columns)(first, number, stride, p->kernel[2], p->dilations[2], largest, where, is_indexed);
            int64_t n_put = n - i < LANES ? n - i : LANES;
            for (int64_t j = 0; j < n_put; j++) put(task.dst, (done + i + j) * p->dst.spatial[2], largest[j], is_bf16);
            for (int64_t j = 0; j < n_put && is_indexed; j++)
                task.indices[(done + i + j) * p->indices.spatial[2]] = task.number + numbered(p, where[j]);
        }
    }
}

TARGET static void OWN(pool)(const bl_max_pooling_t *p, bl_task_t task) {
    int is_bf16 = p->itemsize == 2, is_indexed = task.indices != NULL;
    if (p->is_across && is_indexed)
        is_bf16 ? OWN(pool_across)(p, task, 1, 1) : OWN(pool_across)(p, task, 0, 1);
    else if (p->is_across)
        is_bf16 ? OWN(pool_across)(p, task, 1, 0) : OWN(pool_across)(p, task, 0, 0);
    else if (is_indexed)
        is_bf16 ? OWN(pool_along)(p, task, 1, 1) : OWN(pool_along)(p, task, 0, 1);
    else
        is_bf16 ? OWN(pool_along)(p, task, 1, 0) : OWN(pool_along)(p, task, 0, 0);
}

#undef INLINE_HERE
#undef LANES
#undef TARGET
#undef OWN
#undef VEC
#undef INTS
#undef MASK
#undef LOAD
#undef LOAD_BF16
#undef STORE
#undef STORE_BF16
#undef HIGH_HALVES
#undef SET
#undef LOAD_INTS
#undef STORE_INTS
#undef SET_INTS
#undef FROM
#undef EVEN
#undef AS_INTS
#undef LARGER
#undef IS_NAN
#undef IS_ABOVE
#undef IS_SAME
#undef IS_BELOW
#undef EITHER
#undef BOTH
#undef PICK
#undef PICK_INTS
