/* A team of threads of our own. It serves the OpenMP calls of one shared object, whose import table is filled with
   ours: nothing else in the process is touched. */

/* From now on, parallel regions of the object that holds `address`, and of this one, run on teams; n_cpus: those that
   this process may use. Gives NULL, or why that cannot be; then nothing was changed. */
const char *bl_serve(const void *address, int n_cpus);

/* The calling thread's regions are n_threads wide from now on; gives how wide they were, 0 for undecided. */
int bl_enter(int n_threads);

/* They are as wide as before; with 0, the team goes to whoever needs one next. */
void bl_leave(int before);

/* Regions are about to come: wakes the threads of the calling thread's team. Gives 0 where the system refuses it threads,
   so that regions would be narrower than the primitives are made for. */
int bl_wake(void);

/* The calling thread keeps its team until it ends, and its workers end with it. Gives 0 where that cannot be. */
int bl_keep_team(void);

/* Threads that a region has where its width is not said: what primitives are made for. */
int bl_width(void);
