//! Figures for people.

/// The p-th percentile (0..=100) by nearest rank; `None` of nothing.
pub(crate) fn percentile(values: &[f64], p: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = ((p / 100.0) * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1).min(sorted.len().checked_sub(1)?)).copied()
}

/// A table with right-aligned columns.
pub(crate) fn render(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |c: usize| rows.iter().map(|r| r[c].chars().count()).chain([head[c].chars().count()]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| cells.iter().zip(&widths).map(|(c, w)| format!("{c:>w$}")).collect::<Vec<_>>().join("  ");
    let rows = rows.iter().map(|r| line(r.iter().map(String::as_str).collect()));
    std::iter::once(line(head.to_vec())).chain(rows).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_by_nearest_rank() {
        let ten: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        assert_eq!(percentile(&ten, 50.0), Some(5.0));
        assert_eq!(percentile(&ten, 95.0), Some(10.0));
        assert_eq!(percentile(&ten, 0.0), Some(1.0));
        assert_eq!(percentile(&[], 50.0), None);
    }

    #[test]
    fn columns_line_up() {
        assert_eq!(render(&["a", "bcd"], &[vec!["10".into(), "2".into()]]), " a  bcd\n10    2");
    }
}
