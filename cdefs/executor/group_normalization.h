/* Groups of channels brought to mean 0 and variance 1, and channels scaled and shifted. All threads share the elements of
   a group, which the library's normalisations give to one. */

/* What is multiplied with the normal elements of an image's channel, or added: one number for each `per` channels. */
typedef struct {
    int is_added, is_bf16;
    int64_t image, per; /* from one image's to the next, in numbers: 0 where all have the same; channels of a number */
} bl_vector_t;

enum { BL_MAX_VECTORS = 8 };

typedef struct {
    bl_get_data_t get_data; /* dnnl_memory_get_data_handle */
    int itemsize;           /* 4: f32; 2: bf16 */
    int lanes_at_once;      /* floats in a vector: 16 for AVX-512, 8 for AVX2, else 4 */
    int n_threads;
    /* Extents as elements lie, the outermost first, without holes. A channel is a lane of a block. */
    int64_t n_images, n_blocks, n_pixels, n_lanes;
    int64_t n_channels, group; /* without the padding of the last block; channels of a group */
    int is_together;           /* whether the elements of a group lie side by side */
    double epsilon;
    float slope, low, high; /* results below 0 times slope, then no less than low, no more than high */
    int n_vectors;
    bl_vector_t vectors[BL_MAX_VECTORS]; /* in order */
} bl_group_normalization_t;

/* What bl_group_normalization takes, in this order; of vectors, n_vectors. */
enum { BL_NORM_SRC, BL_NORM_DST, BL_NORM_SCRATCHPAD, BL_NORM_VECTORS };

/* Bytes of scratchpad. */
int64_t bl_group_normalization_scratchpad(const bl_group_normalization_t *problem);

/* Of the type bl_execute_t. Results are the same for any number of threads. */
int bl_group_normalization(const void *problem, void *stream, int n_args, const void *args);
