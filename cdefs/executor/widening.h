/* Numbers of bytes that stay in place: (x - zero point) * scale, as f32 or bf16. The library's reorder takes four times
   as long with a scale. */

typedef struct {
    bl_get_data_t get_data;
    int n_threads;
    int lanes; /* floats in a vector: 16, 8 or 4 */
    int is_signed, to_bf16;
    int has_bf16; /* whether the CPU has instructions for it */
    int64_t n;
} bl_widening_t;

enum { BL_WIDEN_SRC, BL_WIDEN_SCALE, BL_WIDEN_ZERO_POINT, BL_WIDEN_DST, BL_WIDEN_ARGS };

/* Of the type bl_execute_t; the zero point may be absent. */
int bl_widening(const void *problem, void *stream, int n_args, const void *args);
