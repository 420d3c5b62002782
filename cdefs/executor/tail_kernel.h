/* The function of sums, one after the other over all of them. Included where vec, LANES, TARGET and, as OWN(...), logistic(y):
   1 / (1 + 2^y) are defined, and INLINE_HERE. */

/* An odd polynomial, by its 1, 2 or 7 factors of the powers 1, 3, 5, ... */
INLINE_HERE vec OWN(odd)(const float *factors, const int n, vec x) {
    vec square = x * x;
    if (n == 1) return factors[0] * x;
    if (n == 2) return (factors[1] * square + factors[0]) * x;
    vec sum = factors[6] - (vec){0};
#pragma GCC unroll 6
    for (int i = 5; i >= 0; i--) sum = sum * square + factors[i];
    return sum * x;
}

INLINE_HERE vec OWN(gated)(const bl_tail_t *t, vec x, const int gate, const int n_alphas) {
    vec zero = {0}, y = OWN(odd)(t->gate_alphas, n_alphas, x) + t->gate_beta;
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
#define CASE(GATE, N_ALPHAS)                                     \
    if (t->gate == GATE && t->n_gate_alphas == N_ALPHAS)         \
        _Pragma("GCC unroll 32") for (int j = 0; j < n; j++) sums[j] = OWN(gated)(t, sums[j], GATE, N_ALPHAS);
    CASE(BL_LINEAR_GATE, 1)
    CASE(BL_LOGISTIC_GATE, 1)
    CASE(BL_LOGISTIC_GATE, 2)
    CASE(BL_LOGISTIC_GATE, 7)
#undef CASE
    if (t->linear_alpha != 1 || t->linear_beta != 0)
#pragma GCC unroll 32
        for (int j = 0; j < n; j++) sums[j] = t->linear_alpha * sums[j] + t->linear_beta;
}
