/* Elements brought elsewhere as they are, in steady steps along each loop: backwards, too, which the library has no
   strides for. Those of several sources lie in turn there. */

typedef struct {
    bl_get_data_t get_data;
    int n_threads;
    int n_srcs;                            /* BL_COPY_SRCS at most; an element of each, then the next of the first */
    int n_loops;                           /* at least 1; outermost first */
    int64_t extents[12], src[12], dst[12]; /* of each, and bytes from one to the next */
    int64_t begin;                         /* where the first one lies in the source, in bytes */
    int64_t nbytes;                        /* copied at once */
} bl_copying_t;

enum { BL_COPY_SRCS = 8, BL_COPY_DST = 0, BL_COPY_SRC, BL_COPY_ARGS = BL_COPY_SRC + BL_COPY_SRCS };

/* Of the type bl_execute_t. */
int bl_copying(const void *problem, void *stream, int n_args, const void *args);
