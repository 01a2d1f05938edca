//! Names of the Python half of the package that are called from here, each looked up once.

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::IntoPyDict;

use crate::interpreter;

pub(crate) struct Import {
    module: &'static str,
    name: &'static str,
    found: PyOnceLock<Py<PyAny>>,
}

impl Import {
    pub(crate) const fn new(module: &'static str, name: &'static str) -> Import {
        Import { module, name, found: PyOnceLock::new() }
    }

    pub(crate) fn call<'py>(
        &self,
        py: Python<'py>,
        arguments: impl PyCallArgs<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.get(py)?.call1(arguments)
    }

    /// As [`Import::call`], for a result that is kept or handed on.
    pub(crate) fn make<'py>(&self, py: Python<'py>, fields: impl PyCallArgs<'py>) -> PyResult<Py<PyAny>> {
        self.call(py, fields).map(Bound::unbind)
    }

    /// As [`Import::make`], with each field under its name.
    pub(crate) fn make_by_name<'py>(
        &self,
        py: Python<'py>,
        fields: impl IntoPyDict<'py>,
    ) -> PyResult<Py<PyAny>> {
        let fields = fields.into_py_dict(py)?;
        self.get(py)?.call((), Some(&fields)).map(Bound::unbind)
    }

    pub(crate) fn get<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyAny>> {
        interpreter::park_at_the_end();
        self.found.import(py, self.module, self.name)
    }
}
