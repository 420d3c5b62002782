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

/* A function of the type bl_execute_t: `run` with a problem of its own type and the bytes of `n_data` arguments. */
#define BL_ENTRY(name, n_data, run) \
    int name(const void *problem, void *stream, int n_args, const void *args) { \
        const name##_t *p = problem; \
        void *data[n_data] = {0}; \
        (void)stream; \
        int status = bl_find_data(p->get_data, args, n_args, data); \
        return status ? status : run(p, data); \
    }

/* The same of what is written for x86-64 alone. */
#if defined(__x86_64__)
#define BL_X86_ENTRY BL_ENTRY
#else
#define BL_UNIMPLEMENTED(p, data) 3 /* dnnl_unimplemented */
#define BL_X86_ENTRY(name, n_data, run) BL_ENTRY(name, n_data, BL_UNIMPLEMENTED)
#endif
