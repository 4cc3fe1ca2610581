// Work stealing for ranks that share cores: a running rank does the shares of an operation that
// others have not begun.
//
// A rendezvous of two ranks on one core takes a context switch: the first publishes its descriptor
// and yields, the second finds both. If the second did only its own share, the first would have to
// run again before either could leave. So the running rank takes, one after the other, the shares
// that no rank has begun: its own, those of ranks that wait on its core, those of others. A rank
// that runs later finds its share done and continues with the next operation, where it is the
// first. This makes one context switch per operation instead of two.
//
// The word `stolen` of the member whose share it is holds the count of the departure and the thief,
// so an error names the rank that died or stopped while it did the share of another.
#include "comm/transport/shm.h"

enum { STEAL_BITS = 16 };
_Static_assert((int)COMM_MAX_LOCAL < 1 << STEAL_BITS, "who steals fits");

static bool take(const shm_port *p, int member)
{
    uint64_t *at = &p->members[member].stolen, seen = word_get(at);
    const uint64_t next = p->departed + 1, mine = next << STEAL_BITS | (uint32_t)p->base.members.me;
    if (seen >> STEAL_BITS >= next) return false;
    return __atomic_compare_exchange_n(at, &seen, mine, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

int shm_steal(comm_port *port)
{
    const shm_port *p = shm_port_of(port);
    const int me = port->members.me, count = port->members.count;
    if (take(p, me)) return me;
    const uint32_t here = half_get(&p->members[me].cpu);
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        for (int i = 1; i < count; i++) {
            const int r = me + i < count ? me + i : me + i - count;
            const shm_member *m = &p->members[r];
            if ((half_get(&m->cpu) != here) != elsewhere) continue;
            if ((m->descriptors[p->arrived & 1].full.staged & COMM_ALONE) == 0 && take(p, r))
                return r;
        }
    }
    return -1;
}

void shm_complete(comm_port *port, int rank)
{
    shm_port *p = shm_port_of(port);
    const shm_wait w = {.port = p, .departed = p->departed + 1};
    __atomic_store_n(&p->members[rank].departed, w.departed, __ATOMIC_SEQ_CST);
    shm_wake(&w);
}

status shm_steals_wait(comm_port *port)
{
    shm_port *p = shm_port_of(port);
    const shm_wait w = {.port = p, .departed = ++p->departed};
    return shm_wait_all(&w);
}

int shm_holder(const shm_wait *w, int member)
{
    const uint64_t stolen = word_get(&w->port->members[member].stolen);
    if (w->arrives || stolen >> STEAL_BITS != w->departed) return member;
    const int holder = (int)(stolen & ((1 << STEAL_BITS) - 1));
    return holder < w->port->base.members.count ? holder : member;
}
