// A disk that forgets: files and folders in memory, and the log of every change made to them.
//
// What a program sees is the log applied to what was there before. What a power cut leaves is the
// same log with any of its pending changes left out: a write is durable once its file was synced
// after it, a change of a folder's entries once that folder was synced after it; all that is pending
// may be kept or lost, each for itself, and a lost write may have been torn or have made the file
// longer without its bytes. POSIX promises no more, so this knows no journal that orders anything.
#ifndef SUPPORT_SIM_DISK_H
#define SUPPORT_SIM_DISK_H

#include "base/base.h"

typedef enum sim_kind { SIM_FILE, SIM_FOLDER, SIM_LINK } sim_kind;

typedef struct sim_entry {
    char *name;
    int32_t node;
} sim_entry;

typedef struct sim_node {
    sim_kind kind;
    char *data; // of a file; of a link its target
    int64_t bytes, capacity;
    sim_entry *entries; // of a folder
    int32_t entry_count;
} sim_node;

enum { SIM_MAX_NODES = 2048, SIM_MAX_OPS = 16384, SIM_ROOT = 0 };

typedef struct sim_disk {
    sim_node nodes[SIM_MAX_NODES];
    int32_t count;
} sim_disk;

typedef enum sim_op_kind {
    SIM_WRITE,
    SIM_TRUNCATE,
    SIM_SYNC_FILE,
    SIM_ADD,    // a name for a new node
    SIM_DROP,   // a name goes
    SIM_RENAME, // a name moves, over another perhaps
    SIM_SYNC_FOLDER
} sim_op_kind;

typedef struct sim_op {
    sim_op_kind kind;
    int32_t node;              // what is written, synced or named
    int32_t folder, to_folder; // of entries
    char *name, *to_name;
    sim_kind node_kind; // of SIM_ADD
    int64_t offset, bytes;
    char *data;   // of SIM_WRITE; of SIM_ADD a link's target
    int64_t mark; // what the test had set when this was done
} sim_op;

typedef struct sim_log {
    sim_op ops[SIM_MAX_OPS];
    int64_t count;
} sim_log;

typedef enum sim_fate { SIM_KEPT, SIM_LOST, SIM_TORN, SIM_HOLE, SIM_FATES } sim_fate;

sim_disk *sim_disk_create(void); // with an empty root
sim_disk *sim_disk_copy(const sim_disk *from);
void sim_disk_destroy(sim_disk *d);                                     // NULL is legal
int32_t sim_child(const sim_disk *d, int32_t folder, const char *name); // -1: none
// Does one change, or of it what the fate says. The node of a SIM_ADD is made even if its name is
// lost, for its number is its place in the table.
void sim_apply(sim_disk *d, const sim_op *op, sim_fate fate);
// Is change i of the log's first `count` certain to be on the disk after a power cut?
bool sim_is_durable(const sim_log *log, int64_t i, int64_t count);
void sim_log_clear(sim_log *log);
void *sim_alloc(size_t bytes); // zeroed
char *sim_text(const char *s); // a copy

#endif
