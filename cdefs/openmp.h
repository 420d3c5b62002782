/* The OpenMP runtime the library was linked with, reached through the library's own handle. */

typedef enum { omp_pause_soft = 1, omp_pause_hard = 2 } omp_pause_resource_t;

void omp_set_num_threads(int n_threads);
int omp_get_max_threads(void);
int omp_in_parallel(void);
int omp_pause_resource_all(omp_pause_resource_t kind);
