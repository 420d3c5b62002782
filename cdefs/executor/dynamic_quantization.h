/* Numbers as unsigned bytes, by the scale and zero point with which their least and largest, and 0, are the ends of these. */

typedef struct {
    bl_get_data_t get_data;
    int n_threads;
    int64_t n;
} bl_dynamic_quantization_t;

enum { BL_DYNAMIC_SRC, BL_DYNAMIC_DST, BL_DYNAMIC_SCALE, BL_DYNAMIC_ZERO_POINT, BL_DYNAMIC_SCRATCHPAD, BL_DYNAMIC_ARGS };

/* The scale, and the zero point, of numbers from least to most, with 0 among them. */
float bl_dynamic_scale(float least, float most, int has_nan, int *zero);

/* Bytes of scratchpad. */
int64_t bl_dynamic_quantization_scratchpad(const bl_dynamic_quantization_t *problem);

/* Of the type bl_execute_t; without memory where the scale or the zero point is not asked for. */
int bl_dynamic_quantization(const void *problem, void *stream, int n_args, const void *args);
