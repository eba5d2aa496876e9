"""`report.html`: one page that shows what a mapped folder holds, with everything it needs inside."""
