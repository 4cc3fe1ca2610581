// A sheet: rows of fields that a YAML file may have, in the units that sources print (GB, TFLOP/s,
// Gbit/s), and the place of each in a struct of SI units. A sheet is made when a file is read, so
// one list of fields serves a device's own file and the `device.*` keys of a cluster.
#ifndef CATALOG_SHEET_H
#define CATALOG_SHEET_H

#include "base/format/options.h"
#include "catalog/files.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct catalog_field {
    const char *key;
    option_kind kind;  // REAL, INT, BOOL, CHOICE, TEXT or LIST
    int64_t offset;    // in the struct
    int32_t bytes;     // of the struct's field: an INT may be 4 or 8
    double scale;      // of REAL: value in the struct = value in the file x scale; 0 means 1
    double min, max;   // of the file's value; both 0 mean 0 to 1e18
    const char *value; // default; NULL: 0, or empty
    const char *choices;
    bool is_wanted; // the file or its base must give it, and not as 0
    const char *help;
} catalog_field;

typedef struct catalog_fields {
    const catalog_field *rows;
    int64_t count;
    const char *wanted_of; // "device": for errors
} catalog_fields;

typedef struct catalog_sheet catalog_sheet;
NODISCARD status catalog_sheet_create(arena *a, const char *title, catalog_sheet **out);
// Appends fields, with `prefix` ("device.") before their keys and their offsets relative to
// `offset`; -1: they go into no struct. Of optional fields only given ones are applied, and none is
// required.
NODISCARD status catalog_sheet_add(catalog_sheet *s, const char *prefix,
                                   const catalog_fields *fields, int64_t offset, bool is_optional);
// Reads a file and its bases (key `base`), of which the nearest wins; then "key=value" overrides.
NODISCARD status catalog_sheet_read(catalog_sheet *s, const host *h, const char *folder,
                                    const char *what, const char *name, const char *from,
                                    const char *const *overrides, int64_t override_count);
void catalog_sheet_apply(const catalog_sheet *s, void *target);
bool catalog_sheet_is_given(const catalog_sheet *s, const char *key);
int64_t catalog_sheet_whole(const catalog_sheet *s, const char *key);
double catalog_sheet_real(const catalog_sheet *s, const char *key);      // in the file's unit
const char *catalog_sheet_text(const catalog_sheet *s, const char *key); // "" if not given
const option_list *catalog_sheet_list(const catalog_sheet *s, const char *key);
// Rows in the order in which they were added: all keys that a file may have.
const option_table *catalog_sheet_table(const catalog_sheet *s);
int64_t catalog_sheet_count(const catalog_sheet *s);
const option *catalog_sheet_option(const catalog_sheet *s, int64_t row);
// Prints the value of a row as a file would have it.
NODISCARD status catalog_sheet_print(const catalog_sheet *s, int64_t row, text *out);
// The program's entry that was read, or that the file is based on; NULL: none.
const char *catalog_sheet_entry(const catalog_sheet *s);
// "catalog/clusters/h100.yaml:3:9": the place of the key, or the file.
const char *catalog_sheet_place(const catalog_sheet *s, const char *key);
const char *catalog_sheet_folder(const catalog_sheet *s,
                                 const char *key); // of the file that gave it

#ifdef __cplusplus
}
#endif
#endif
