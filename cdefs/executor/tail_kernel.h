/* The function of sums, one after the other over all of them. Included where vec, LANES, TARGET and, as OWN(...), logistic(y):
   1 / (1 + 2^y) are defined, and INLINE_HERE. */

INLINE_HERE vec OWN(gated)(const bl_tail_t *t, vec x, const int gate, const int n_alphas) {
    vec zero = {0}, y = WIDE(odd)(t->gate_alphas, n_alphas, x) + t->gate_beta;
    return x * (gate == BL_LOGISTIC_GATE ? OWN(logistic)(y) : WIDE(min)(zero + 1.0f, WIDE(max)(zero, y)));
}

INLINE_HERE void OWN(finish)(const bl_tail_t *t, vec *sums, const int n) {
    vec zero = {0}, low = t->low - zero, high = t->high - zero;
    if (t->slope != 1)
#pragma GCC unroll 32
        for (int j = 0; j < n; j++) sums[j] = WIDE(max)(zero, sums[j]) + t->slope * WIDE(min)(zero, sums[j]);
    if (t->low > -INFINITY || t->high < INFINITY)
#pragma GCC unroll 32
        for (int j = 0; j < n; j++) sums[j] = WIDE(min)(high, WIDE(max)(low, sums[j]));
#define GATE(GATE, N_ALPHAS)                                     \
    if (t->gate == GATE && t->n_gate_alphas == N_ALPHAS)         \
        _Pragma("GCC unroll 32") for (int j = 0; j < n; j++) sums[j] = OWN(gated)(t, sums[j], GATE, N_ALPHAS);
    GATE(BL_LINEAR_GATE, 1)
    GATE(BL_LOGISTIC_GATE, 1)
    GATE(BL_LOGISTIC_GATE, 2)
    GATE(BL_LOGISTIC_GATE, 7)
#undef GATE
    if (t->linear_alpha != 1 || t->linear_beta != 0)
#pragma GCC unroll 32
        for (int j = 0; j < n; j++) sums[j] = t->linear_alpha * sums[j] + t->linear_beta;
}
