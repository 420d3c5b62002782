/* The bytes of what a primitive is given. */

#pragma once

/* dnnl_exec_arg_t */
typedef struct {
    int arg;
    void *memory;
} bl_arg_t;

/* Where the bytes of `n` arguments lie; those without memory keep what `data` has. Returns a dnnl_status_t. */
static inline int bl_find_data(int (*get_data)(const void *memory, void **data), const void *args, int n, void **data) {
    const bl_arg_t *given = (const bl_arg_t *)args;
    int status = 0;
    for (int i = 0; i < n && !status; i++)
        if (given[i].memory) status = get_data(given[i].memory, &data[i]);
    return status;
}
