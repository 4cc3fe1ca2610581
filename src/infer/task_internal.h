// Lines of a task's data: shared by the kinds of tasks.
#ifndef INFER_TASK_INTERNAL_H
#define INFER_TASK_INTERNAL_H

#include "base/format/json.h"
#include "data/jinja.h"
#include "infer/task.h"

enum { TASK_SCRATCH_BYTES_MAX = 1 << 29 };

typedef struct task_reading {
    arena *a, *scratch; // scratch: of a line
    data_tokenizer *t;
    const task_spec *spec;
    const char *path; // the file that is read
    int64_t line;     // its number, and the line itself
    const char *used; // names of members stand in it; NULL: any may be used
    const char *line_text;
    int64_t line_bytes;
    jinja_template *context, *target; // target: of generation tasks
    text shots;                       // the solved items
    data_ids ids;
    void *out; // of the kind
} task_reading;

typedef status (*task_take)(task_reading *r, const json *item);

// Reads `shots` lines of shots_data with `shot`, then up to `limit` (0: all) lines of data with
// `item`.
NODISCARD status task_lines_read(task_reading *r, const host *h, int64_t limit, task_take shot,
                                 task_take item);
// A template's text for an item, in r->scratch. answer: a variable more; NULL: none.
NODISCARD status task_render(task_reading *r, const jinja_template *t, const json *item,
                             const char *answer, text *out);
// ST_DATA with the line.
NODISCARD status task_refused(const task_reading *r, const char *what, const char *key);

#endif
