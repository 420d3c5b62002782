/* Our own executor: steps of a plan, one after the other, without Python. Pointers to what is oneDNN's are untyped. */

typedef int (*bl_execute_t)(const void *primitive, void *stream, int n_args, const void *args);

typedef struct {
    bl_execute_t execute; /* NULL: nothing to do */
    const void *primitive;
    const void *args; /* dnnl_exec_arg_t[n_args] */
    int n_args;
} bl_step_t;

/* Runs steps until one fails; gives its status and, in *failed, its place, or 0.
   On flush_threads threads, the caller among them, denormals are zero meanwhile; 0 leaves them as they are.
   times: n_steps + 1 readings of the monotonic clock in nanoseconds, before, between and behind the steps; or NULL. */
int bl_run(void *stream, const bl_step_t *steps, int n_steps, int flush_threads, int *failed, long long *times);
