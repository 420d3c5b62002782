/* The function of sums, one after the other over all of them. Included where vec, LANES, TARGET and, as OWN(...), logistic(y):
   1 / (1 + 2^y) are defined, and INLINE_HERE. */

INLINE_HERE vec OWN(gated)(const bl_tail_t *t, vec x) {
    vec zero = {0}, y = t->gate_alpha * x + t->gate_beta;
    if (t->gate == BL_LOGISTIC_GATE) return x * OWN(logistic)(-1.44269504f * y);
    return x * WIDE(min)(zero + 1.0f, WIDE(max)(zero, y));
}

INLINE_HERE void OWN(finish)(const bl_tail_t *t, vec *sums, const int n) {
    vec zero = {0}, low = t->low - zero, high = t->high - zero;
    if (t->slope != 1)
#pragma GCC unroll 32
        for (int j = 0; j < n; j++) sums[j] = WIDE(max)(zero, sums[j]) + t->slope * WIDE(min)(zero, sums[j]);
#pragma GCC unroll 32
    for (int j = 0; j < n; j++) sums[j] = WIDE(min)(high, WIDE(max)(low, sums[j]));
    if (t->gate != BL_NO_GATE)
#pragma GCC unroll 32
        for (int j = 0; j < n; j++) sums[j] = OWN(gated)(t, sums[j]);
    if (t->linear_alpha != 1 || t->linear_beta != 0)
#pragma GCC unroll 32
        for (int j = 0; j < n; j++) sums[j] = t->linear_alpha * sums[j] + t->linear_beta;
}
