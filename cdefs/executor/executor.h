/* Our own executor: steps of a plan, one after the other, without Python. Pointers to what is oneDNN's are untyped. */

typedef int (*bl_execute_t)(const void *primitive, void *stream, int n_args, const void *args);
typedef int (*bl_set_data_t)(void *memory, void *data);

typedef struct {
    bl_execute_t execute; /* NULL: nothing to do */
    const void *primitive;
    const void *args; /* dnnl_exec_arg_t[n_args] */
    int n_args;
    int n_threads; /* width of its parallel regions, where that is less than the program's */
} bl_step_t;

/* A memory that is put to a caller's buffer for each run. */
typedef struct {
    void *memory; /* dnnl_memory_t */
    int buffer;   /* index of the buffer */
    int64_t offset; /* bytes from its beginning */
} bl_binding_t;

/* When a run is to end before its last step. Other threads ask for it while it goes on. */
typedef struct {
    volatile int is_asked;
    long long deadline; /* by the monotonic clock, in nanoseconds; 0: none */
} bl_stop_t;

typedef struct {
    void *stream;
    bl_set_data_t set_data; /* dnnl_memory_set_data_handle */
    const bl_step_t *steps;
    const bl_binding_t *bindings;
    char **buffers; /* given ones, then fresh ones, each of which may begin up to 63 bytes further on */
    int *gaps;      /* how much further on each fresh one begins, at a multiple of 64 */
    int n_steps, n_bindings, n_given, n_fresh;
    int n_threads;     /* width of parallel regions, with our own team; 0: as the caller made them */
    int flush_threads; /* threads, the caller among them, on which denormals are zero meanwhile; 0: as they are */
    unsigned *modes;   /* flush_threads of them, for how each treated denormals before */
    int failed;        /* index of the step that failed */
} bl_program_t;

enum { BL_NO_THREADS = -1, BL_STOPPED = -2 }; /* the library's own are not negative */

/* Binds memories to buffers, runs the steps until one fails, unbinds; returns its status, or 0; or BL_STOPPED. Where the
   system gives the team fewer threads than it needs, it runs none and returns BL_NO_THREADS.
   stop: looked at before each step; NULL: nobody stops it.
   times: n_steps + 1 readings of the monotonic clock in nanoseconds, before, between and behind the steps; or NULL. */
int bl_run(bl_program_t *program, const bl_stop_t *stop, long long *times);
