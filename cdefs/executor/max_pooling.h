/* The largest element of each window, NaN if one is there, and where it was; and the way back. The library's max pooling
   drops NaN, and says where in its window an element was, not where in the tensor. */

/* Distances between elements that are a line apart. `lanes` elements side by side are a line, lines are in groups, and
   groups in outer ones: images, blocks of channels, channels; or channels and images. */
typedef struct {
    int64_t outer, group, spatial[3], lane;
} bl_lines_t;

typedef struct {
    bl_get_data_t get_data; /* dnnl_memory_get_data_handle */
    int itemsize;           /* 4: f32; 2: bf16 */
    int lanes_at_once;      /* floats in a vector: 16 for AVX-512, 8 for AVX2, 4 for SSE4.1, or 1 */
    int n_threads;
    int is_across;          /* whether lanes are channels, or images; else results along the last extent */
    int64_t n_outer, n_groups;
    int64_t lanes, last_lanes, padded_lanes; /* of each group, of the last one, and with the zeros behind it */
    int64_t extents[3], results[3], kernel[3], strides[3], dilations[3], pads[3];
    bl_lines_t src, dst, indices;
    bl_lines_t number;  /* what indices say of the source's elements */
    int64_t scanned[3]; /* the same in row-major order, in which the first of equal ones is found */
    int is_row_major;   /* whether they are the same */
} bl_max_pooling_t;

typedef struct {
    bl_get_data_t get_data;
    int itemsize, n_threads;
    int64_t n_outer, n_groups, lanes, last_lanes;
    int64_t extents[3];         /* of the source, in lines */
    int64_t numbered[5];        /* extents by which indices count */
    bl_lines_t src, indices;
    bl_lines_t dst, number;     /* of a line's own plane */
    int64_t image, group, in_group, channel; /* distances in the result, and channels of a group */
    int64_t nbytes;             /* of the result */
} bl_max_unpooling_t;

/* What they take, in this order; indices of the pooling may be absent. */
enum { BL_POOL_SRC, BL_POOL_INDICES, BL_POOL_DST, BL_POOL_ARGS };

/* Of the type bl_execute_t. */
int bl_max_pooling(const void *problem, void *stream, int n_args, const void *args);

/* Likewise; returns 2, dnnl_invalid_arguments, where an index is none of the result's. */
int bl_max_unpooling(const void *problem, void *stream, int n_args, const void *args);
