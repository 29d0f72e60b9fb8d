/*
 * The simulated page cache: which pages of which file are in memory. Only for a machine that was told to keep count;
 * without it, what is in memory is left to chance.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/sim/machine.h"

static size_t page_of(int64_t position)
{
    return (size_t)(position / PB_SIM_PAGE_BYTES);
}

/* Pages from that of `position` to that of the last byte. */
static size_t page_end(int64_t position, int64_t length)
{
    return length > 0 ? page_of(position + length - 1) + 1 : page_of(position);
}

static void reserve_pages(sim_file *file, size_t count)
{
    if (count <= file->page_count)
        return;
    uint8_t *pages = realloc(file->pages, count);
    PB_ASSERT(pages != NULL);
    memset(pages + file->page_count, 0, count - file->page_count);
    file->pages = pages;
    file->page_count = count;
}

void sim_pages_set(sim_machine *machine, sim_file *file, int64_t position, int64_t length, bool resident)
{
    if (!machine->counts_pages)
        return;
    size_t end = page_end(position, length);
    reserve_pages(file, end);
    for (size_t page = page_of(position); page < end; page++)
        file->pages[page] = resident;
}

bool sim_pages_resident(const sim_file *file, int64_t position, int64_t length)
{
    for (size_t page = page_of(position), end = page_end(position, length); page < end; page++)
        if (page >= file->page_count || file->pages[page] == 0)
            return false;
    return true;
}

void pb_sim_count_pages(pb_io *io)
{
    sim_of(io)->counts_pages = true;
}

void pb_sim_forget_pages(pb_io *io, int64_t run_bytes, uint32_t per_million)
{
    sim_machine *machine = sim_of(io);
    PB_ASSERT(machine->counts_pages && run_bytes >= PB_SIM_PAGE_BYTES);
    for (size_t i = 0; i < machine->disk.name_count; i++) {
        sim_file *file = machine->disk.names[i].file;
        if (file == NULL || file->page_count == 0)
            continue;
        int64_t bytes = (int64_t)file->page_count * PB_SIM_PAGE_BYTES;
        for (int64_t at = 0; at < bytes; at += run_bytes)
            if (sim_chance(machine, per_million))
                sim_pages_set(machine, file, at, bytes - at < run_bytes ? bytes - at : run_bytes, false);
    }
}
