resource "google_cloud_scheduler_job" "tick" {
  name      = "${var.name}-compaction"
  region    = var.region
  schedule  = local.schedule.cron
  time_zone = "Etc/UTC"

  pubsub_target {
    topic_name = google_pubsub_topic.topic[local.schedule.topic].id
    data       = base64encode(local.tick.data)
    attributes = local.tick.attributes
  }
}
