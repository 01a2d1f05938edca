//! `pipework.atomic`: whole messages over one pipe.

mod item;
mod options;
mod reader;
mod writer;

use pyo3::prelude::*;

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // Public under shorter names: pipework/atomic.py.
    module.add("AtomicReader", module.py().get_type::<reader::Reader>())?;
    module.add("AtomicWriter", module.py().get_type::<writer::Writer>())?;
    module.add("Messages", module.py().get_type::<reader::Messages>())?;
    module.add_class::<options::Zstd>()?;
    module.add_function(wrap_pyfunction!(options::pair, module)?)?;
    module.add_function(wrap_pyfunction!(options::create_fifo, module)?)?;
    module.add_function(wrap_pyfunction!(options::max_capacity, module)?)
}
