// A crew of threads for work that is divided among them; the first of its workers is the caller.
#ifndef BASE_CREW_H
#define BASE_CREW_H

#include "base/status.h"
#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CREW_MOST = 16 };

// Called once for each worker, 0 the caller's, on a thread of its own; they share out the work themselves.
typedef status (*crew_work_fn)(void *context, int32_t worker);

// At most CREW_MOST workers; fewer where the system gives no more threads, so all of the work must be done by any
// number of them. Returns when all are done: ST_OK, or what the first of those that failed says.
NODISCARD status crew_run(int32_t workers, crew_work_fn work, void *context);

#ifdef __cplusplus
}
#endif
#endif
