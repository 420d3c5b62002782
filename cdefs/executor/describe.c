#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../status.h"

#include "../engine.h"
#include "../memory.h"

#include "describe.h"

static int64_t integer(const bl_library_t *library, const void *desc, int query) {
    int found = 0; /* enumerations are as wide */
    library->query_desc(desc, query, &found);
    return found;
}

static void integers(const bl_library_t *library, const void *desc, int query, int64_t n, int64_t *read) {
    const dnnl_dims_t *found = NULL;
    if (n && library->query_desc(desc, query, &found) == dnnl_success) memcpy(read, *found, (size_t)n * sizeof *read);
}

static void read_desc(const bl_library_t *library, const void *desc, bl_desc_t *read) {
    read->format_kind = integer(library, desc, dnnl_query_format_kind);
    read->data_type = integer(library, desc, dnnl_query_data_type);
    read->ndims = integer(library, desc, dnnl_query_ndims_s32);
    integers(library, desc, dnnl_query_dims, read->ndims, read->dims);
    if (read->format_kind != dnnl_blocked) return;

    read->n_blks = integer(library, desc, dnnl_query_inner_nblks_s32);
    library->query_desc(desc, dnnl_query_submemory_offset_s64, &read->offset);
    read->nbytes = (int64_t)library->desc_size(desc);
    integers(library, desc, dnnl_query_padded_dims, read->ndims, read->padded_dims);
    integers(library, desc, dnnl_query_strides, read->ndims, read->strides);
    integers(library, desc, dnnl_query_inner_blks, read->n_blks, read->inner_blks);
    integers(library, desc, dnnl_query_inner_idxs, read->n_blks, read->inner_idxs);
}

int64_t bl_describe(const bl_library_t *library, const void *pd, int n_args, const int *args, bl_desc_t *read) {
    for (int i = 0; i < n_args; i++) {
        const void *desc = library->query_md(pd, dnnl_query_exec_arg_md, args[i]);
        if (desc) read_desc(library, desc, &read[i]);
    }
    const void *scratchpad = library->query_md(pd, dnnl_query_scratchpad_md, 0);
    return scratchpad ? (int64_t)library->desc_size(scratchpad) : 0;
}
