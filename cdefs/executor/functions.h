/* Functions of each element that take an exponential: the library's take two to four times as long. */

typedef struct {
    bl_get_data_t get_data;
    int lanes;    /* floats in a vector: 8 for AVX2, 16 for AVX-512 */
    int is_bf16, has_bf16; /* of both, and whether there are instructions for it */
    int which;
    int n_threads;
    float alpha;
    int64_t n;
} bl_functions_t;

/* 1 / (1 + exp(-alpha * x)); x times that; and x times that of x + 0.044715 * x^3. */
enum { BL_LOGISTIC, BL_SWISH, BL_GELU_TANH };

enum { BL_FUNCTIONS_SRC, BL_FUNCTIONS_DST, BL_FUNCTIONS_ARGS };

/* Of the type bl_execute_t; both lie in the same order, and may be the same. */
int bl_functions(const void *problem, void *stream, int n_args, const void *args);
