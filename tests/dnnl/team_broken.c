/* What sanitizers must find, each compiled and run as the C parts are: else their silence means nothing. */

#include "../../cdefs/executor/imports.c"
#include "../../cdefs/executor/team.c"

static void count(void *counter) {
    barrier(); /* so that there are two threads */
    ++*(int *)counter;
}

/* Both threads of a region count in one place. */
int data_race(int n) {
    prepare();
    parallel(count, &n, 2, 0);
    return n;
}

int heap_overflow(int n) {
    char *bytes = malloc((size_t)n);
    bytes[n] = 1;
    int read = bytes[n];
    free(bytes);
    return read;
}

int signed_overflow(int n) { return INT_MAX - 10 + n; }

int misaligned(int n) {
    char bytes[16] = {0};
    return *(int *)(bytes + n % 3 + 1);
}
