// Shared by config.c, config_yaml.c and config_complain.c: the tree of a YAML text, places in it,
// and the list of complaints.
#ifndef BASE_FORMAT_CONFIG_INTERNAL_H
#define BASE_FORMAT_CONFIG_INTERNAL_H

#include "base/format/config.h"

#ifdef __cplusplus
extern "C" {
#endif

// Limits on hostile input.
enum {
    CONFIG_BYTES_MAX = 1 << 20,
    CONFIG_DEPTH_MAX = 16,
    CONFIG_NODES_MAX = 1 << 16,
    CONFIG_ENTRIES_MAX = 4096 // per map: the check for duplicates compares all pairs
};

// A range of one line, counted from 1; line 0 is the command line.
typedef struct config_mark {
    int64_t line, column, width; // in characters
} config_mark;

// The text from which a config was read.
typedef struct config_source {
    const char *name; // the name in errors
    const char *bytes;
    int64_t count;
} config_source;

struct config_complaints {
    arena *a;
    text body;
    int64_t count, shown;
    status first;  // code of the first complaint
    status broken; // the error that prevented a complaint from being kept
    config_source source;
    const config *c; // NULL while the config is being read
};
void config_complaints_init(config_complaints *l, arena *a, const config_source *source);
void config_complain_at(config_complaints *l, config_mark mark, status code, const char *format,
                        ...) PRINTF_LIKE(4, 5);
// True while another complaint would still be shown; if false, the caller need not compose an
// expensive one.
bool config_complaints_has_space(const config_complaints *l);
// "run.yaml:14:3", or "command line".
NODISCARD status config_mark_text(arena *a, const config_source *source, config_mark mark,
                                  char **out);

typedef enum config_node_kind { CONFIG_SCALAR, CONFIG_MAP, CONFIG_LIST } config_node_kind;

typedef struct config_node config_node;
struct config_node {
    config_node_kind kind;
    const char *text; // scalars only; NUL-terminated, holds no other NUL
    bool is_plain;    // a scalar without quotes
    config_mark mark;
    config_node *key;          // map entries only
    config_node *first, *last; // items or entries
    config_node *next;         // sibling
    int64_t count;             // number of items or entries
};
// Reads one document. Complains about every construct that a configuration must not use. *out is
// NULL for an empty text and where the YAML is malformed.
NODISCARD status config_tree_read(config_complaints *l, config_node **out);

const config_mark *config_mark_of(const config *c, const char *key); // NULL: not given

#ifdef __cplusplus
}
#endif
#endif
