/* The import table of a shared object that is loaded: the addresses of what it calls in others. */

#pragma once

typedef struct {
    const char *name;
    void (*function)(void);
} bl_served_t;

/* Makes the object that holds `address` call these functions in place of OpenMP's of the same names. Gives NULL,
   or why that cannot be: then nothing was changed, since all of its OpenMP calls are served or none. */
const char *bl_fill_imports(const void *address, const bl_served_t *served, int n_served);
