// The transports, in the order in which "auto" tries them, and how a group's members set one up.
#include "comm/transport/transport_table.h"

#include "base/hash.h"
#include "control/frame.h"

#include <string.h>

const comm_transport *const comm_transport_table[] = {&comm_transport_self, &comm_transport_shm,
                                                      &comm_transport_ucx, &comm_transport_mpi};

int comm_transport_count(void)
{
    return (int)COUNT_OF(comm_transport_table);
}

const comm_transport *comm_transport_find(const char *name)
{
    for (int i = 0; i < comm_transport_count(); i++) {
        if (strcmp(comm_transport_table[i]->name, name) == 0) return comm_transport_table[i];
    }
    return NULL;
}

status comm_members_swap(const comm_config *config, const comm_members *m, const void *mine,
                         int64_t bytes, void *all)
{
    if (config->swap == NULL) {
        return fail(ST_UNSUPPORTED, "group %s: its members have no way to set a transport up",
                    m->name);
    }
    const uint64_t key = hash64(m->ranks, m->count * (int64_t)sizeof(*m->ranks),
                                (uint64_t)config->epoch << 32 | m->group);
    const control_group g = {.key = key, .place = m->me, .count = m->count};
    return config->swap(config->swap_context, &g, mine, bytes, all);
}
