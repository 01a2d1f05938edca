/* The one wait: slices of the library's, and Perl's signal handlers between them. */
#include "pwperl.h"

/* For how long at most a signal waits that came just before the library did. */
#define LONGEST_SLICE_MS 250

pwk_status pwp_wait(pTHX_ SV **self, pwp_slice slice, void *arguments, pwk_deadline deadline,
                    pwk_error *error) {
    for (;;) {
        pwk_deadline until = pwk_in_ms(LONGEST_SLICE_MS);
        bool is_last = deadline <= until;
        pwk_status status = slice(aTHX_ arguments, is_last ? deadline : until, error);
        if (status != PWK_INTERRUPTED && (status != PWK_TIMED_OUT || is_last)) return status;
        if (LIKELY(!PL_sig_pending)) continue;
        if (self) *self = pwp_pin(aTHX_ *self);
        self = NULL;
        PERL_ASYNC_CHECK();
    }
}

NV pwp_seconds(pTHX_ SV *seconds) {
    NV wanted;
    if (!seconds) return -1;
    seconds = pwp_number(aTHX_ seconds);
    if (!SvOK(seconds)) return -1;
    wanted = pwp_real(aTHX_ seconds);
    /* A century is for ever, and more nanoseconds than that do not fit. */
    return wanted >= 0 && wanted < 3.15e9 ? wanted : -1;
}

pwk_deadline pwp_deadline_in(NV seconds) {
    return seconds < 0 ? PWK_NEVER : pwk_in_ns((int64_t)(seconds * 1e9));
}

pwk_deadline pwp_deadline(pTHX_ SV *seconds) {
    return pwp_deadline_in(pwp_seconds(aTHX_ seconds));
}
