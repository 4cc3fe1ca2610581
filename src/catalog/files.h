// Files of catalog/ that the build embedded in the program, found by folder and name; others by
// path.
#ifndef CATALOG_FILES_H
#define CATALOG_FILES_H

#include "base/host.h"
#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct catalog_file {
    const char *folder; // "devices"
    const char *name;   // "h100"
    const char *yaml;
} catalog_file;
extern const catalog_file
    catalog_files[]; // made by CMake, by folder and name; ends with an empty row

// The name's case, '-' and '_' do not count (text_find_name). NULL: the program has no such file.
const catalog_file *catalog_file_find(const char *folder, const char *name);

// A text to parse, its name in errors, and the folder for its relative paths.
typedef struct catalog_source {
    const char *yaml;
    int64_t bytes;
    const char *shown, *folder;
} catalog_source;

bool catalog_is_path(const char *name); // has a '/', or ends in .yaml
// Reads a path, or the embedded file of that name in `folder`; ST_NOT_FOUND lists the nearest names
// and all. `what`: "device". A relative path starts at `from` ("": the current folder).
NODISCARD status catalog_source_read(const host *h, arena *a, const char *folder, const char *what,
                                     const char *name, const char *from, catalog_source *out);
// Names in `folder`, in order.
NODISCARD status catalog_names(arena *a, const char *folder, const char ***out, int64_t *count);
// The device with the longest name that the name of a GPU contains; the H100 for others.
NODISCARD status catalog_gpu_entry(arena *a, const char *gpu, const char **out);

#ifdef __cplusplus
}
#endif
#endif
