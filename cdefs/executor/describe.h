/* What a primitive descriptor settled on, read by one call. */

typedef const void *(*bl_query_md_t)(const void *pd, int query, int index);
typedef int (*bl_query_desc_t)(const void *desc, int query, void *result);
typedef size_t (*bl_desc_size_t)(const void *desc);

/* The library's functions that answer. */
typedef struct {
    bl_query_md_t query_md;     /* dnnl_primitive_desc_query_md */
    bl_query_desc_t query_desc; /* dnnl_memory_desc_query */
    bl_desc_size_t desc_size;   /* dnnl_memory_desc_get_size */
} bl_library_t;

/* A memory descriptor's answers to all that it can be asked; zeros where it has fewer dimensions or blocks. */
typedef struct {
    int64_t format_kind, data_type, ndims, n_blks, offset, nbytes;
    int64_t dims[12], padded_dims[12], strides[12], inner_blks[12], inner_idxs[12];
} bl_desc_t;

/* Reads the descriptors of execution arguments into read[n_args], which holds zeros and keeps them where there is none.
   Returns the bytes of scratchpad. */
int64_t bl_describe(const bl_library_t *library, const void *pd, int n_args, const int *args, bl_desc_t *read);
