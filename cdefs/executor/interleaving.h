/* The bytes of an image's three channels side by side, from a plane of each. The library takes four times as long. */

typedef struct {
    bl_get_data_t get_data; /* dnnl_memory_get_data_handle */
    int n_threads;
    int64_t n_images, n_pixels;
} bl_interleaving_t;

enum { BL_PLANES_SRC, BL_PLANES_DST, BL_PLANES_ARGS };

/* Of the type bl_execute_t. */
int bl_interleaving(const void *problem, void *stream, int n_args, const void *args);
