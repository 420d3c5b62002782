/* Functions of sums of two tensors of bytes, each with a scale: the library takes nearly twice as long. */

typedef struct {
    bl_get_data_t get_data;
    int n_threads;
    int is_signed[2], dst_is_signed;
    int has_relu;      /* before the linear function */
    float alpha, beta; /* of that one */
    int64_t n;
} bl_byte_sums_t;

enum { BL_SUMS_SRC_0, BL_SUMS_SRC_1, BL_SUMS_SCALE_0, BL_SUMS_SCALE_1, BL_SUMS_DST, BL_SUMS_ARGS };

/* Of the type bl_execute_t; the result may be one of the sources. */
int bl_byte_sums(const void *problem, void *stream, int n_args, const void *args);
