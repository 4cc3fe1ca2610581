// Inside comm/nccl/: NVIDIA's NCCL, found at run time. The build needs no header of it: the types
// below have the layout of those in nccl.h. Tests fill the table with a library of their own.
#ifndef COMM_NCCL_LIBRARY_H
#define COMM_NCCL_LIBRARY_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nccl_clique *nccl_handle; // ncclComm_t: a rank's end of a communicator
typedef struct nccl_id {
    char bytes[128];
} nccl_id;

enum {
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7,
    NCCL_OLDEST = 21900 // 2.19.0: the first whose operations may be captured and aborted as here
};
// Types and reductions by their numbers in nccl.h.
enum {
    NCCL_I8 = 0,
    NCCL_U8 = 1,
    NCCL_I32 = 2,
    NCCL_U32 = 3,
    NCCL_I64 = 4,
    NCCL_U64 = 5,
    NCCL_F16 = 6,
    NCCL_F32 = 7,
    NCCL_F64 = 8,
    NCCL_BF16 = 9,
    NCCL_SUM = 0,
    NCCL_MAX = 2,
    NCCL_MIN = 3,
    NCCL_AVG = 4
};

// X(field, symbol, parameters): each returns a ncclResult_t; 0: success.
#define NCCL_FUNCTIONS(X)                                                                         \
    X(version, ncclGetVersion, (int *out))                                                        \
    X(id_make, ncclGetUniqueId, (nccl_id * out))                                                  \
    X(join, ncclCommInitRank, (nccl_handle * out, int ranks, nccl_id id, int rank))               \
    X(leave, ncclCommDestroy, (nccl_handle h))                                                    \
    X(stop, ncclCommAbort, (nccl_handle h))                                                       \
    X(error_later, ncclCommGetAsyncError, (nccl_handle h, int *out))                              \
    X(group_begin, ncclGroupStart, (void))                                                        \
    X(group_end, ncclGroupEnd, (void))                                                            \
    X(all_reduce, ncclAllReduce,                                                                  \
      (const void *in, void *out, size_t count, int type, int reduction, nccl_handle h,           \
       void *stream))                                                                             \
    X(reduce_scatter, ncclReduceScatter,                                                          \
      (const void *in, void *out, size_t count, int type, int reduction, nccl_handle h,           \
       void *stream))                                                                             \
    X(all_gather, ncclAllGather,                                                                  \
      (const void *in, void *out, size_t count, int type, nccl_handle h, void *stream))           \
    X(broadcast, ncclBroadcast,                                                                   \
      (const void *in, void *out, size_t count, int type, int root, nccl_handle h, void *stream)) \
    X(reduce, ncclReduce,                                                                         \
      (const void *in, void *out, size_t count, int type, int reduction, int root, nccl_handle h, \
       void *stream))                                                                             \
    X(send, ncclSend,                                                                             \
      (const void *in, size_t count, int type, int peer, nccl_handle h, void *stream))            \
    X(receive, ncclRecv, (void *out, size_t count, int type, int peer, nccl_handle h, void *stream))

typedef struct nccl_library {
#define NCCL_FIELD(field, symbol, parameters) int(*field) parameters;
    NCCL_FUNCTIONS(NCCL_FIELD)
#undef NCCL_FIELD
    const char *(*text)(int result);
} nccl_library;

// Loads libnccl.so.2; it stays open until the process ends. ST_UNSUPPORTED, with the remedy: it is
// not there or too old.
NODISCARD status nccl_library_open(nccl_library *out);

#ifdef __cplusplus
}
#endif
#endif
