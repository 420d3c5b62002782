#define _GNU_SOURCE
#include "imports.h"

#if defined(__linux__) && defined(__LP64__)

#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LOOK, OPEN, FILL, SEAL }; /* in this order */

typedef struct {
    uintptr_t address;  /* in the object that is looked for */
    int pass;
    const bl_served_t *served;
    int n_served;
    const char *reason; /* why it cannot be served */
    char unserved[64];
} import_t;

static int is_openmp(const char *name) {
    return !strncmp(name, "GOMP_", 5) || !strncmp(name, "omp_", 4) || !strncmp(name, "__kmpc_", 7);
}

static void visit_slot(import_t *import, const char *name, uintptr_t slot, uintptr_t sealed, uintptr_t sealed_end) {
    int number = 0;
    while (number < import->n_served && strcmp(import->served[number].name, name) != 0) number++;
    if (number == import->n_served) {
        import->reason = import->unserved;
        snprintf(import->unserved, sizeof import->unserved, "it calls %.40s", name);
        return;
    }
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = slot / page * page;
    int is_sealed = sealed <= slot && slot < sealed_end;
    if (import->pass == OPEN && is_sealed && mprotect((void *)begin, page, PROT_READ | PROT_WRITE))
        import->reason = "its import table cannot be written";
    if (import->pass == FILL) __atomic_store_n((uintptr_t *)slot, (uintptr_t)import->served[number].function, __ATOMIC_RELEASE);
    if (import->pass == SEAL && is_sealed) mprotect((void *)begin, page, PROT_READ);
}

static void visit_table(import_t *import, const struct dl_phdr_info *object, const ElfW(Rela) *table, size_t nbytes,
    const ElfW(Sym) *symbols, const char *names) {
    uintptr_t sealed = 0, sealed_end = 0, page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_GNU_RELRO) {
            sealed = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
            sealed_end = (sealed + object->dlpi_phdr[i].p_memsz) / page * page; /* what shares a page with data is open */
        }
    for (size_t i = 0; table && i < nbytes / sizeof *table && !import->reason; i++) {
        const ElfW(Sym) *symbol = &symbols[ELF64_R_SYM(table[i].r_info)];
        if (!ELF64_R_SYM(table[i].r_info) || symbol->st_shndx != SHN_UNDEF) continue;
        if (is_openmp(names + symbol->st_name))
            visit_slot(import, names + symbol->st_name, object->dlpi_addr + table[i].r_offset, sealed, sealed_end);
    }
}

static int holds(const struct dl_phdr_info *object, uintptr_t address) {
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && address - object->dlpi_addr - part->p_vaddr < part->p_memsz) return 1;
    }
    return 0;
}

/* 1 ends the walk over objects: it was this one. */
static int visit_object(struct dl_phdr_info *object, size_t size, void *given) {
    import_t *import = given;
    (void)size;
    if (!holds(object, import->address)) return 0;
    const ElfW(Rela) *calls = NULL, *others = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    size_t calls_nbytes = 0, others_nbytes = 0;
    const ElfW(Dyn) *entry = NULL;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        const void *pointer = (const void *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_JMPREL) calls = pointer;
        if (entry->d_tag == DT_PLTRELSZ) calls_nbytes = entry->d_un.d_val;
        if (entry->d_tag == DT_RELA) others = pointer;
        if (entry->d_tag == DT_RELASZ) others_nbytes = entry->d_un.d_val;
        if (entry->d_tag == DT_SYMTAB) symbols = pointer;
        if (entry->d_tag == DT_STRTAB) names = pointer;
    }
    if (!symbols || !names || (uintptr_t)symbols < object->dlpi_addr) {
        import->reason = "its import table cannot be read";
        return 1;
    }
    visit_table(import, object, calls, calls_nbytes, symbols, names);
    visit_table(import, object, others, others_nbytes, symbols, names);
    return 1;
}

static const char *visit(import_t *import, const void *address) {
    import->address = (uintptr_t)address;
    if (!dl_iterate_phdr(visit_object, import)) return "it is not loaded";
    return import->reason;
}

const char *bl_fill_imports(const void *const *addresses, int n_addresses, const bl_served_t *served, int n_served) {
    static _Thread_local import_t import; /* its reason outlives the call */
    import = (import_t){.served = served, .n_served = n_served};
    for (import.pass = LOOK; import.pass <= SEAL; import.pass++)
        for (int i = 0; i < n_addresses; i++) {
            const char *reason = visit(&import, addresses[i]);
            if (reason) return reason;
        }
    return NULL;
}

#endif
