/* Objects that have a handle of the library behind them. */
#include "pwperl.h"

int pwp_free_magic(pTHX_ SV *object, MAGIC *magic) {
    const pwp_class *kind = (const pwp_class *)magic->mg_virtual;
    void *state = magic->mg_ptr;
    dSAVE_ERRNO;
    PERL_UNUSED_ARG(object);
    magic->mg_ptr = NULL;
    if (state) kind->release(aTHX_ state);
    RESTORE_ERRNO;
    return 0;
}

int pwp_local_magic(pTHX_ SV *fresh, MAGIC *magic) {
    PERL_UNUSED_CONTEXT;
    PERL_UNUSED_ARG(fresh);
    PERL_UNUSED_ARG(magic);
    return 0;
}

int pwp_dup_magic(pTHX_ MAGIC *magic, CLONE_PARAMS *param) {
    const pwp_class *kind = (const pwp_class *)magic->mg_virtual;
    PERL_UNUSED_ARG(param);
    if (magic->mg_ptr) magic->mg_ptr = (char *)kind->share(aTHX_ magic->mg_ptr);
    return 0;
}

void pwp_attach(pTHX_ SV *object, const pwp_class *kind, void *state) {
    MAGIC *magic = sv_magicext(object, NULL, PERL_MAGIC_ext, &kind->vtable, (const char *)state, 0);
    magic->mg_flags |= MGf_DUP | MGf_LOCAL;
}

/* A scalar that is too small for magic has something else in that place. */
static MAGIC *magic_of(pTHX_ SV *thing, const MGVTBL *vtable) {
    return SvTYPE(thing) >= SVt_PVMG ? mg_findext(thing, PERL_MAGIC_ext, vtable) : NULL;
}

static MAGIC *find_magic(pTHX_ SV *self, const pwp_class *kind) {
    return SvROK(self) ? magic_of(aTHX_ SvRV(self), &kind->vtable) : NULL;
}

void *pwp_find(pTHX_ SV *self, const pwp_class *kind) {
    MAGIC *magic = find_magic(aTHX_ self, kind);
    return magic ? magic->mg_ptr : NULL;
}

/* Marks what pwp_pin returns. */
static const MGVTBL pinned = {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL};

SV *pwp_pin(pTHX_ SV *self) {
    SV *pin;
    /* A value that is no reference only has to stay alive. */
    if (!SvROK(self)) return pwp_keep(aTHX_ self);
    pin = sv_2mortal(newRV_inc(SvRV(self)));
    sv_magicext(pin, NULL, PERL_MAGIC_ext, &pinned, NULL, 0);
    return sv_rvweaken(pin);
}

/* Whether fetching the argument may run Perl code. An undefined one gives a warning. */
static bool is_active(SV *argument) {
    return SvGMAGICAL(argument) || SvROK(argument) || !SvOK(argument);
}

/* Whether a warning runs Perl code: a handler, or a tied STDERR. */
static bool warnings_are_active(pTHX) {
    IO *to = PL_stderrgv && isGV_with_GP(PL_stderrgv) ? GvIO(PL_stderrgv) : NULL;
    return PL_warnhook || (to && SvRMAGICAL((SV *)to));
}

/* Whether no look at these can run Perl code. */
static bool are_quiet(pTHX_ I32 ax, I32 first, I32 items) {
    bool have_text = false;
    I32 i;
    for (i = first; i < items; i++) {
        if (is_active(ST(i))) return false;
        have_text = have_text || !SvNIOK(ST(i));
    }
    /* Text that is no number gives a warning. */
    return !have_text || !warnings_are_active(aTHX);
}

SV *pwp_keep(pTHX_ SV *value) {
    return sv_2mortal(SvREFCNT_inc_simple_NN(value));
}

static void hold(pTHX_ I32 ax, I32 first, I32 items) {
    I32 i;
    for (i = first; i < items; i++) pwp_keep(aTHX_ ST(i));
}

void pwp_hold(pTHX_ I32 ax, I32 items) {
    if (!are_quiet(aTHX_ ax, 0, items)) hold(aTHX_ ax, 0, items);
}

SV *pwp_self(pTHX_ I32 ax, I32 items) {
    if (are_quiet(aTHX_ ax, 1, items)) return ST(0);
    hold(aTHX_ ax, 1, items);
    return pwp_pin(aTHX_ ST(0));
}

void *pwp_state(pTHX_ SV *self, const pwp_class *kind) {
    MAGIC *magic = find_magic(aTHX_ self, kind);
    bool is_gone = magic ? !magic->mg_ptr : !SvROK(self) && magic_of(aTHX_ self, &pinned) != NULL;
    if (!magic && !is_gone) croak("Expected a %s object", pwp_called(aTHX_ kind->name));
    if (is_gone) croak("Attempted to use a destroyed %s object", pwp_called(aTHX_ kind->name));
    return magic->mg_ptr;
}

void *pwp_take(pTHX_ SV *self, const pwp_class *kind) {
    MAGIC *magic = find_magic(aTHX_ self, kind);
    void *state = magic ? magic->mg_ptr : NULL;
    if (magic) magic->mg_ptr = NULL;
    return state;
}

const char *pwp_called(pTHX_ const char *package) {
    HV *originals = get_hv("Pipework::InsteadOf::original", 0);
    SV **name = originals ? hv_fetch(originals, package, (I32)strlen(package), 0) : NULL;
    return name && SvPOK(*name) ? SvPVX(*name) : package;
}

void pwp_destroy(pTHX_ SV *self, const pwp_class *kind) {
    void *state = pwp_take(aTHX_ self, kind);
    dSAVE_ERRNO;
    if (state) kind->release(aTHX_ state);
    RESTORE_ERRNO;
}

HV *pwp_stash(pTHX_ SV *class_or_object) {
    if (SvROK(class_or_object) && SvOBJECT(SvRV(class_or_object))) {
        return SvSTASH(SvRV(class_or_object));
    }
    return gv_stashsv(class_or_object, GV_ADD);
}
