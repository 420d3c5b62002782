/* Numbers of another type that stay in place. Of bytes: (x - zero point) * scale, as f32 or bf16; the library's reorder
   takes four times as long with a scale. Between f32 and f16 or bf16: to the nearest, the even one of two; on a CPU that
   does not compute in these the library takes a hundred times as long. */

enum { BL_U8, BL_S8, BL_F32, BL_BF16, BL_F16 };

typedef struct {
    bl_get_data_t get_data;
    int n_threads;
    int lanes; /* floats in a vector: 16, 8 or 4 */
    int from, to; /* BL_U8, ... */
    int has_bf16; /* whether the CPU has instructions for it */
    int64_t n;
} bl_widening_t;

enum { BL_WIDEN_SRC, BL_WIDEN_SCALE, BL_WIDEN_ZERO_POINT, BL_WIDEN_DST, BL_WIDEN_ARGS };

/* Of the type bl_execute_t; scale and zero point may be absent. */
int bl_widening(const void *problem, void *stream, int n_args, const void *args);
