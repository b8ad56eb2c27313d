"""The objective and a loop: enough to retrain what is bundled."""
