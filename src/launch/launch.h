// Starts and supervises processes: finds out which rank this process is, and starts local ranks.
//
//   launch_detect          reads the environment of a launcher: trireme's own, torchrun, srun,
//                          Open MPI, PMI or a Kubernetes indexed job; the first complete set wins,
//                          and an incomplete one is refused
//   launch_local           starts N ranks of this program on this machine and waits until all ended
//   launch_live            the same, and gives the living ranks new places after a loss or a join
//   launch_join            joins this rank to the job; on rank 0 it starts the coordinator first
//   launch_liveness_start  tells a rank that its launcher is gone; it stops with a checkpoint
//
// A child inherits descriptors of the job's key (a pipe), of the shared control block of this
// host's ranks, of a pipe that ends with the launcher, and, on rank 0, of the coordinator's socket.
// The variable TRIREME_LAUNCH holds their numbers and no secret.
#ifndef LAUNCH_LAUNCH_H
#define LAUNCH_LAUNCH_H

#include "control/control.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LAUNCH_TEXT_BYTES = 2048,
    LAUNCH_ORDER_BYTES = 16384,
    LAUNCH_LOCAL_MAX = 256,
    LAUNCH_LIVE_MAX = 4096, // ranks that live on, on all hosts
    LAUNCH_HOSTS_MAX = 4096
};

// ---- detection ----------------------------------------------------------------------------------
// Reads an environment variable; NULL if it is not set.
typedef const char *(*launch_lookup)(void *context, const char *name);

typedef struct launch_place {
    const char *launcher; // "trireme", "torchrun", "slurm", "openmpi", "pmi", "kubernetes"; "none"
    int rank, ranks;
    int local_rank, local_ranks; // on this host; -1: the launcher does not say
    uint64_t job;                // equal on all ranks; 0: no variable names the job
    // The coordinator's address, in rank 0's process; "": unknown.
    char address[CONTROL_ADDRESS_BYTES];
    int key_fd, control_block_fd, liveness_fd, listen_fd; // "trireme" only; -1: none
    int post_fd;    // -1: none; else launch_post_wait() gets the place, and `rank` is not set
    uint32_t epoch; // number of the place's epoch
    char note[256]; // a hint for the user: "inside sbatch without srun: ..."; or ""
} launch_place;

// A set that exists but cannot be read, is not complete or contradicts itself gives ST_CONFIG and
// names the variables. TRIREME_ADDRESS and
// TRIREME_PORT override the coordinator's address, except under trireme's own launcher.
NODISCARD status launch_detect(launch_lookup lookup, void *context, launch_place *out);

// The GPUs of this node that Slurm gave to this process, by the numbers of their device files,
// which neither CUDA_VISIBLE_DEVICES nor a device cgroup changes.
enum { LAUNCH_GPUS_MAX = 64 };
typedef struct launch_gpus {
    const char *variable; // that names them
    const char *list;     // its value, borrowed
    int numbers[LAUNCH_GPUS_MAX];
    int count;      // 0: Slurm says nothing about them
    int local_rank; // of this task on its node; 0: it is alone
} launch_gpus;

// A list that names no numbers is as good as none: it is that of a site without device files.
void launch_gpus_of_slurm(launch_lookup lookup, void *context, launch_gpus *out);

// Expands "n[1-2,5]" to n1, n2, n5, in order; several brackets and lists are allowed. More than
// `limit` names or a malformed list give ST_CONFIG.
NODISCARD status launch_hosts(arena *a, const char *list, int64_t limit, file_names *out);

// ---- local ranks --------------------------------------------------------------------------------
typedef struct launch_local_config {
    const host *h;
    int ranks;
    const char *program;      // path of the program
    char *const *argv;        // arguments of every rank
    char *const *environment; // environment of this process; TRIREME_LAUNCH is added
    uint64_t job;             // 0: a random number
    const char *log_folder;   // existing folder for rank-00000.log ...
    int console_fd;           // also receives rank 0's output; -1: none
    int control_block_fd;     // from comm; -1: none
    int64_t grace_ns;         // [10 s] from the first failure to the end of all other ranks
    // Called from the calling thread when a rank ended; may be NULL.
    void (*on_end)(void *context, int rank, const char *said);
    void *context;
} launch_local_config;

typedef struct launch_result {
    int exit_code;       // exit code for this process, from the table of exit codes
    int rank;            // the first rank that failed; -1: none
    int lost;            // the rank that is the cause: one that was stopped, else `rank`
    int ended_by;        // the signal that ended it; 0: it exited
    int64_t ended_at;    // monotonic time at which its end was noticed
    bool was_asked;      // a signal to this process was forwarded
    bool is_interrupted; // a second SIGINT ended the job; `text` says no more
    // Shown last: which rank failed, where and how, and the end of its log.
    char text[LAUNCH_TEXT_BYTES];
} launch_result;

// Returns when all ranks have ended and have been waited for. It fails only if they could not be
// started. Meanwhile SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGXCPU, SIGHUP and SIGQUIT are forwarded
// and have no effect on this process; SIGHUP stays ignored if it was. A rank starts with these
// signals blocked, so that an early one neither kills it nor is lost; launch_join unblocks them, so
// install handlers before. A SIGINT after another of these signals kills all ranks.
NODISCARD status launch_local(const launch_local_config *config, launch_result *out);

// ---- ranks that live on -------------------------------------------------------------------------
// launch_live gives places epoch by epoch. An epoch ends when a rank is lost or one joins. Then
// each living rank says through its socket that it is ready, and a rank that does not is ended. The
// next epoch begins when each one is ready or dead. It has another key, socket, job number and
// control block, so a rank of an earlier epoch can reach none of them.
typedef enum launch_event { LAUNCH_BEGIN, LAUNCH_LOST, LAUNCH_WRONG, LAUNCH_JOINED } launch_event;
typedef struct launch_change {
    launch_event event; // WRONG: a rank's values were wrong, and all are alive
    int available;      // processes that could take a place
    int rank;           // the one that is the cause; -1: unknown
    int64_t at;         // monotonic time at which it was noticed
    const char *cause;  // a line
    const char *filler; // "a spare", "a new process": takes the free places; NULL: nothing does
    bool is_last;       // waiting has no use: resilience.join_timeout is over, or a stop was asked
    int64_t epoch;      // number of the epoch to begin, from 0; on several hosts only
    int64_t step;       // the newest one that a rank has finished
    int ranks;          // of the epoch that ends; on several hosts only
} launch_change;
typedef struct launch_epoch {
    int ranks;                     // places; 0: too few processes, wait for one to join
    int control_block_fd;          // of this epoch
    uint64_t job;                  // and its number
    char text[LAUNCH_ORDER_BYTES]; // for the ranks
} launch_epoch;
typedef struct launch_live_config {
    launch_local_config local; // ranks: places of the whole layout
    int spares;
    bool replaces;   // a lost process is replaced by a new one
    int join_fd;     // a socket at which processes join; -1: none
    int64_t wait_ns; // for a process to join when there are too few
    // Decides the next epoch. A failure ends the job with its text.
    status (*plan)(void *context, const launch_change *change, launch_epoch *out);
    // `count` processes of this host have got their places, from rank `first` on.
    void (*placed)(void *context, const int64_t *processes, int first, int count);
    // A waiting process is prepared. NULL: not told.
    void (*spare)(void *context, int64_t process, int64_t bytes, int64_t places);
    // A waiting process has ended, or cannot prepare and takes a place as it is; process 0: none
    // could be started, or no more are. NULL: not told.
    void (*spare_failed)(void *context, int64_t process, const char *why);
    void *context;
    // Several hosts: another launcher has started one of these processes on each, or one for each
    // rank. NULL: one host. They must have the same facts.
    const launch_place *place;
    const char *key_path;
    const control_fact *facts;
    int64_t fact_count;
    const char *hosts_path; // file by which this host's launcher comes back; NULL: it cannot
} launch_live_config;
// As launch_local. On several hosts each process starts its part of the ranks. They decide by
// majority (control/council.h), and one of them leads: it plans the epochs. Its role moves when it
// is lost. A process that hears no majority ends its ranks. One that is started again with the same
// command comes back, and its ranks join the next epoch.
NODISCARD status launch_live(const launch_live_config *config, launch_result *out);

// The file at hosts_path: where the launchers of a run on several hosts listen, so that one that is
// started again comes back. It belongs to launcher `self`.
typedef struct launch_seats {
    uint64_t job, facts;                      // facts: a digest of them
    int self, count;                          // self: -1: there is no such file
    char first_at[CONTROL_ADDRESS_BYTES];     // coordinator of the first start
    char (*addresses)[CONTROL_ADDRESS_BYTES]; // [count]
    const char *folder;                       // of the command; NULL: not known
    char **arguments;                         // ended by NULL
} launch_seats;
NODISCARD status launch_seats_read(const host *h, arena *a, const char *path, launch_seats *out);
// Returns whether a process listens at the member's address; the first other member of which that
// is true, or -1.
bool launch_seat_listens(const launch_seats *s, int member);
int launch_seats_alive(const launch_seats *s);

// The rank's side of it. Waits for a place. place->rank: -1: none is free, so the process is a
// spare of an epoch with this order, and waits again when it is prepared. *is_over: the job needs
// this process no more. The process's output goes where the launcher wants it.
NODISCARD status launch_post_wait(int post_fd, launch_place *place, char order[LAUNCH_ORDER_BYTES],
                                  bool *is_over);
bool launch_post_has_news(int post_fd); // launch_post_wait() would return at once
// This spare has reserved memory, and has plans for so many places.
void launch_post_spare(int post_fd, int64_t bytes, int64_t places);
// It could not prepare.
void launch_post_spare_failed(int post_fd, const char *why);
// This rank has left its epoch because of `said`; wrong: the rank whose values are wrong, or -1.
// step: the last one that it has finished.
void launch_post_ready(int post_fd, bool is_asked, int wrong, int64_t step, const char *said);
// A process that joins: gets the arguments and the folder of the launcher's command, which it then
// executes with TRIREME_LAUNCH="post FD".
NODISCARD status launch_post_join(const char *address, arena *a, int *post_fd, char ***arguments,
                                  char **folder);

// ---- the rank's side ----------------------------------------------------------------------------
typedef struct launch_job {
    control_key *key;
    control_server *server; // in rank 0's process
    control *c;
} launch_job;

typedef struct launch_join_config {
    const host *h;
    const launch_place *place; // launch_join takes its key_fd and listen_fd
    const char *key_path;      // used if no key is inherited
    bool allow_wildcard;
    uint32_t epoch;
    const control_fact *facts;
    int64_t fact_count;
    int64_t join_ns;
    control_limits limits;
    void (*report)(void *context, control_report *out);
    void (*on_notice)(void *context, const control_notice *n);
    status (*cancelled)(void *context); // as in control_config
    // Called on rank 0, for the log.
    void (*on_coordinator_notice)(void *context, const control_notice *n);
    void *context;
} launch_join_config;
NODISCARD status launch_join(const launch_join_config *config, launch_job *out);
void launch_leave(launch_job *j); // Collective; a zeroed job is legal

// Starts a thread that watches the launcher through the pipe `fd`, which it takes.
typedef struct launch_liveness_config {
    void (*on_end)(void *context); // once, when the launcher is gone
    // The process ends (exit code 7) this long after it, so that no orphan remains; 0: never.
    int64_t grace_ns;
    // Once, when another rank of this launcher has failed; NULL: not called. Ranks that have joined
    // also learn it from control.
    void (*on_failure)(void *context);
    void *context;
} launch_liveness_config;
typedef struct launch_liveness launch_liveness;
NODISCARD status launch_liveness_start(int fd, const launch_liveness_config *config,
                                       launch_liveness **out);
void launch_liveness_stop(launch_liveness *l); // NULL is legal

#ifdef __cplusplus
}
#endif
#endif
