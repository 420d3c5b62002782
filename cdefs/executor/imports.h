/* The import table of a shared object that is loaded: the addresses of what it calls in others. */

#pragma once

typedef struct {
    const char *name;
    void (*function)(void);
} bl_served_t;

/* Makes the objects that hold these addresses call these functions in place of OpenMP's of the same names. Gives NULL,
   or why that cannot be: then nothing was changed, since all of their OpenMP calls are served or none. */
const char *bl_fill_imports(const void *const *addresses, int n_addresses, const bl_served_t *served, int n_served);
