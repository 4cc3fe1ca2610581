// Status codes: the error, its blast radius and the exit code of the program.
//
// One table makes the enum, the codes that users see (`trireme help C012`), the sentences, the
// blast radius that recovery switches on, and the exit code. To add an error: one row.
//
// The first function that knows the cause calls fail(); its callers add nothing, or one note(). The
// text lives in the thread's error record until the next fail() or error_clear().
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

// The party that must act. CALL: retry the call. GROUP: rebuild the group. RANK: restart the
// process. JOB: stop the job. USER: fix the input.
typedef enum status_radius {
    RADIUS_NONE,
    RADIUS_CALL,
    RADIUS_GROUP,
    RADIUS_RANK,
    RADIUS_JOB,
    RADIUS_USER
} status_radius;

// X(name, code shown to users, radius, exit code, sentence)
#define STATUS_TABLE(X)                                                                         \
    X(OK, "", NONE, 0, "done")                                                                  \
    X(INTERNAL, "I001", JOB, 1, "a bug in this program")                                        \
    X(USAGE, "U001", USER, 2, "the command line is invalid")                                    \
    X(CONFIG, "C001", USER, 3, "the configuration cannot be used")                              \
    X(CONFIG_SYNTAX, "C010", USER, 3, "the file is not YAML, or uses YAML that is not allowed") \
    X(CONFIG_TYPE, "C011", USER, 3, "a value has the wrong type")                               \
    X(CONFIG_KEY, "C012", USER, 3, "there is no such key")                                      \
    X(CONFIG_RANGE, "C013", USER, 3, "a value is outside its limits")                           \
    X(CONFIG_CONFLICT, "C031", USER, 3, "two values conflict")                                  \
    X(CONFIG_FIXED, "C040", USER, 3, "a key that is fixed for a run was changed")               \
    X(DOES_NOT_FIT, "M001", USER, 3, "the run does not fit in memory")                          \
    X(UNSUPPORTED, "C050", USER, 3, "this combination is not supported")                        \
    X(MODEL, "C060", USER, 3, "the model's configuration cannot be used")                       \
    X(IO, "E001", CALL, 4, "an input or output operation failed")                               \
    X(NOT_FOUND, "E002", USER, 4, "a file or folder does not exist")                            \
    X(DISK_FULL, "E003", CALL, 4, "no space is left on the disk")                               \
    X(LOCKED, "E004", USER, 4, "another process is using the run")                              \
    X(NO_MEMORY, "M004", RANK, 4, "the system gave no memory at run time")                      \
    X(DEVICE, "E010", RANK, 4, "the device failed")                                             \
    X(DAMAGED, "K003", USER, 5, "a file is damaged or not what it claims to be")                \
    X(DATA, "K010", USER, 5, "the data cannot be used")                                         \
    X(NUMERICS, "N002", USER, 6, "a number is NaN or infinite, or the loss diverged")           \
    X(PEER_LOST, "D001", GROUP, 7, "another process of the job was lost")                       \
    X(TIMEOUT, "D002", GROUP, 7, "a deadline passed")                                           \
    X(DIVERGED, "D003", JOB, 7, "the ranks of a job disagree")                                  \
    X(CORRUPT, "D005", JOB, 7, "replicas of the state differ")                                  \
    X(REFUSED, "D004", USER, 3, "a rank was refused: it differs from the others")               \
    X(BROKEN_PLAN, "P001", USER, 8, "the plan is inconsistent")                                 \
    X(ANSWER_NO, "A001", USER, 8, "the command ran, and the answer is no")                      \
    X(STOPPED, "T001", USER, 75, "stopped with a checkpoint; run again to continue")            \
    X(SECURITY, "S001", USER, 76, "refused for security")

typedef enum status {
#define STATUS_ENUM(name, code, radius, exit_code, sentence) ST_##name,
    STATUS_TABLE(STATUS_ENUM)
#undef STATUS_ENUM
        STATUS_COUNT
} status;

#define NODISCARD                        __attribute__((warn_unused_result))
#define PRINTF_LIKE(format_at, first_at) __attribute__((format(printf, format_at, first_at)))

// Facts about a code, from the table.
const char *status_name(status code);     // "CONFIG_KEY"
const char *status_code(status code);     // "C012"
const char *status_sentence(status code); // "there is no such key"
status_radius status_blast_radius(status code);
int status_exit_code(status code);

enum { ERROR_TEXT_BYTES = 4096 };

// The record of the first function that knew the cause, and the notes of its callers.
typedef struct error_record {
    status code;
    const char *file;
    int line;
    char text[ERROR_TEXT_BYTES]; // "what, which, expected, got"; notes follow, each on a line
} error_record;

// Records the cause in this thread's record and returns `code`. Lower-case, no period.
status fail_at(const char *file, int line, status code, const char *format, ...) PRINTF_LIKE(4, 5);
#ifdef __clang_analyzer__ // which must know that fail() never returns ST_OK
#    define fail(code, ...) ((void)fail_at(__FILE__, __LINE__, (code), __VA_ARGS__), (code))
#else
#    define fail(code, ...) fail_at(__FILE__, __LINE__, (code), __VA_ARGS__)
#endif

// Adds "while ..." to the record, for the one caller that knows something more.
void note(const char *format, ...) PRINTF_LIKE(1, 2);

const error_record *error_last(void); // this thread's record; borrowed, never NULL
void error_clear(void);
// Moves a record from one thread to another, for example from a stream's thread to the host's.
void error_take(error_record *out);
status error_put(const error_record *from);

#define TRY(call)                             \
    do {                                      \
        const status try_st_ = (call);        \
        if (try_st_ != ST_OK) return try_st_; \
    } while (0)

// Sets the local `st` and jumps to a clean-up label.
#define TRY_TO(label, call)          \
    do {                             \
        st = (call);                 \
        if (st != ST_OK) goto label; \
    } while (0)

// Assertions. ASSERT is always on; DEBUG_ASSERT only where TRIREME_DEBUG is defined.
// Never on input data. Both end in panic(), which runs the hook (flight recorder) and aborts.
typedef void (*panic_hook)(void *context);
void panic_hook_set(panic_hook hook, void *context);
void panic_at(const char *file, int line, const char *text) __attribute__((noreturn));
#define ASSERT(condition) \
    ((condition) ? (void)0 : panic_at(__FILE__, __LINE__, "assertion failed: " #condition))
#ifdef TRIREME_DEBUG
#    define DEBUG_ASSERT(condition) ASSERT(condition)
#else
#    define DEBUG_ASSERT(condition) ((void)sizeof(condition))
#endif

#ifdef __cplusplus
}
#endif
#endif
