# Writes man pages of section 3 from the header: awk -v folder=man3 -v version=0.1.0 -f man.awk pipework.h
# Its first comment is pipework(3). Each section of it is a page, which bears the name of the first
# type or function there; every other one has a page that leads to it. A section with nothing of its
# own introduces a module, and stands in pipework(3). Pages are written at the end, when it is known
# what each of them holds: apropos(1) finds a name where the head of a page has it.

function escaped(text) {
    gsub(/\\/, "\\e", text)
    if (text ~ /^[.']/) text = "\\&" text
    return text
}

function open_page(name, title) {
    page = name
    pages[++page_count] = name
    names[name] = name
    titles[name] = title
    if (name != "pipework") put(".SH SYNOPSIS\n.nf\n#include <pipework.h>\n.fi")
    put(".SH DESCRIPTION")
}

# A line of the page that is open.
function put(line) {
    bodies[page] = bodies[page] line "\n"
}

function close_page(name,    i, others) {
    for (i = 1; i <= page_count; i++) {
        if (name == "pipework" && i > 1) others = others ".BR " pages[i] " (3)" (i < page_count ? " ,\n" : "\n")
    }
    if (name != "pipework") others = ".BR pipework (3)\n"
    printf ".TH %s 3 \"\" \"pipework %s\" \"pipework\"\n.SH NAME\n%s \\- %s\n%s.SH SEE ALSO\n%s", \
        toupper(name), version, names[name], titles[name], bodies[name], others > (folder "/" name ".3")
    close(folder "/" name ".3")
}

END {
    for (i = 1; i <= page_count; i++) close_page(pages[i])
}

# A comment as paragraphs; lines of code and of a list stay as they are.
function put_text(text,    lines, count, i, code, line) {
    count = split(text, lines, "\n")
    for (i = 1; i <= count; i++) {
        line = lines[i]
        if (line ~ /^```/) {
            code = !code
            put(code ? ".PP\n.EX" : ".EE")
        } else if (code) {
            put(escaped(line))
        } else if (line == "") {
            put(".PP")
        } else {
            if (line ~ /^([0-9]+\.|-) /) put(".PP")
            sub(/^ +/, "", line)
            gsub(/`/, "", line)
            put(escaped(line))
        }
    }
}

function begin_section(    title, at) {
    # The first sentence names the page, and all of it opens it.
    title = intro
    gsub(/\n/, " ", title)
    at = index(title, ". ")
    if (at) title = substr(title, 1, at - 1)
    sub(/\.$/, "", title)
    open_page(item, title)
    put_text(intro)
    intro = ""
}

function put_module(    before, title) {
    before = page
    page = "pipework"
    title = intro
    sub(/:.*/, "", title)
    put(".SS " title)
    put_text(intro)
    page = before
}

function put_constants(    blocks, count, i, at) {
    count = split(constants, blocks, "\n\f\n")
    for (i = 1; i < count; i++) {
        at = index(blocks[i], "\n")
        put(".TP\n.B " substr(blocks[i], 1, at - 1))
        put_text(substr(blocks[i], at + 1))
    }
    constants = ""
}

function put_item() {
    if (intro != "") {
        begin_section()
        put_constants()
    }
    if (item != page) {
        names[page] = names[page] ", " item
        print ".so man3/" page ".3" > (folder "/" item ".3")
        close(folder "/" item ".3")
    }
    put(".SS " item)
    put(".nf")
    put_code(declaration)
    put(".fi\n.PP")
    put_text(note)
}

function put_code(text,    lines, count, i) {
    count = split(text, lines, "\n")
    for (i = 1; i <= count; i++) if (lines[i] != "") put(escaped(lines[i]))
}

# Comments.
/^ *\/\*/ && !in_declaration {
    in_comment = 1
    is_section = ($0 ~ /^\/\* -----/)
    note = ""
    if ($0 ~ /\*\/$/) {
        note = $0
        sub(/^ *\/\* */, "", note)
        sub(/ *\*\/$/, "", note)
        in_comment = 0
    }
    next
}
in_comment && /^ *\*\/$/ {
    in_comment = 0
    if (is_section) {
        if (intro != "") put_module()
        intro = note
        note = ""
    } else if (!seen_front) {
        seen_front = 1
        title = note
        sub(/^pipework: /, "", title)
        sub(/\..*/, "", title)
        gsub(/\n/, " ", title)
        open_page("pipework", title)
        put_text(note)
        note = ""
    }
    next
}
in_comment {
    line = $0
    sub(/^ *\* ?/, "", line)
    note = note (note == "" ? "" : "\n") line
    next
}

# Declarations.
/^#define PWK_/ {
    # Where a section begins with some, they wait for its page.
    constants = constants $2 "\n" note "\n\f\n"
    if (intro == "") put_constants()
    note = ""
    next
}
/^(typedef|[a-z].*\()/ && !in_declaration {
    in_declaration = 1
    declaration = ""
}
in_declaration {
    declaration = declaration $0 "\n"
    is_end = ($0 ~ /;$/) && (declaration !~ /\{/ || $0 ~ /^\}/)
    if (is_end) {
        in_declaration = 0
        item = declaration
        if (item ~ /^typedef/) {
            sub(/;\n$/, "", item)
            sub(/.*[ *}]/, "", item)
        } else {
            sub(/\(.*/, "", item)
            sub(/.*[ *]/, "", item)
        }
        put_item()
        note = ""
    }
}
