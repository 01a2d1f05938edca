/* Arguments of Pipework::Atomic's methods that are more than a value. */
#include "atomic.h"

bool pwp_atomic_asked(pTHX_ I32 ax, I32 items, const char *name) {
    bool asked = FALSE;
    I32 i;
    for (i = 1; i + 1 < items; i += 2) {
        SV *key = pwp_fetch(aTHX_ ST(i));
        SV *value = pwp_fetch(aTHX_ ST(i + 1));
        if (strEQ(SvPV_nomg_nolen(key), name)) asked = SvTRUE_nomg(value);
    }
    return asked;
}

static size_t bytes_or(pTHX_ SV *wanted, size_t otherwise) {
    return SvOK(wanted) ? SvUV_nomg(wanted) : otherwise;
}

void pwp_atomic_options(pTHX_ I32 ax, I32 items, pwk_atomic_options *options) {
    NV spin;
    pwk_atomic_options_init(options, sizeof *options);
    if (items != 6) croak("Pipework::Atomic: six options are expected");
    options->mixed = SvTRUE(ST(0));
    options->strict = SvTRUE(ST(1));
    options->max_message = bytes_or(aTHX_ ST(2), options->max_message);
    options->max_unfinished = bytes_or(aTHX_ ST(3), options->max_unfinished);
    options->read_size = bytes_or(aTHX_ ST(4), options->read_size);
    spin = SvOK(ST(5)) ? SvNV(ST(5)) : -1;
    if (spin >= 0) options->spin_ns = spin < 1 ? (uint64_t)(spin * 1e9) : 1000000000;
    options->max_pending = SIZE_MAX;
}
