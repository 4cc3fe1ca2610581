// Libraries that are looked for at run time.
#ifndef BASE_LIBRARY_H
#define BASE_LIBRARY_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

// Puts the address of a symbol of a library that dlopen() gave into *out, a pointer to a function
// or to data: both have the same size on every system that has dlsym. False: it is not there.
bool library_find(void *library, const char *name, void *out);

// Loads a library, whose symbols stay its own, for as long as the process runs. NULL: *why is NULL
// if there is no such file, or else the loader's own text, which the next load overwrites.
void *library_load(const char *name, const char **why);

#ifdef __cplusplus
}
#endif
#endif
